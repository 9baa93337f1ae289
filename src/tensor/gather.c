/* SPDX-License-Identifier: MIT */
/*
 * A byte range of the shown content is cut into boxes (index ranges, one per dimension), the
 * largest first that starts where the range does; partial elements at its ends go through a small
 * buffer.
 */
#include "tensor/gather.h"

#include <errno.h>
#include <string.h>

#include "base/source.h"
#include "tensor/box.h"

enum {
    LONG_RUN = 4096,          /* shown bytes: where runs are as long, order does not matter */
    READ_AT_ONCE = 4096,      /* bytes that should come from each read of a band */
    SMALLEST_BAND = 1 << 20,  /* bytes */
    LARGEST_BAND = 32u << 20, /* bytes */
};

/* Drops dimensions of size 1 and joins those that step through the file as one; axes[0] is the
 * innermost. False: too many, the shape is not to be trusted. */
static bool simplify(const struct wfs_tensor *tensor, const struct recipe *recipe, struct box *box)
{
    const struct wfs_shape *shape = &tensor->shape;
    const uint64_t *strides = tensor->stored.strides;
    uint64_t n_below = 1; /* shown elements of one index */
    box->n_axes = 0;
    for (uint32_t i = shape->rank; i-- > 0;) {
        const uint64_t n = shape->dims[i];
        const uint64_t in = (strides == NULL ? n_below : strides[i]) * recipe->n_in;
        if (n == 1)
            continue;
        struct axis *inner = box->n_axes > 0 ? &box->axes[box->n_axes - 1] : NULL;
        if (inner != NULL && in == inner->in * inner->n) {
            inner->n *= n;
        } else {
            if (box->n_axes == PERMUTE_MAX_AXES)
                return false;
            box->axes[box->n_axes++] = (struct axis){n, in, n_below * recipe->n_out};
        }
        n_below *= n;
    }
    return true;
}

/* The largest box that starts at the element numbered first and has at most n_elems of them. */
static uint64_t cut_box(const struct box *all, uint64_t first, uint64_t n_elems, struct box *ret)
{
    uint64_t n_inner = 1;
    ret->n_axes = 0;
    for (uint32_t i = 0; i < all->n_axes && n_elems >= n_inner; i++) {
        const uint64_t index = first % all->axes[i].n;
        const uint64_t n_left = all->axes[i].n - index, n_fit = n_elems / n_inner;
        struct axis *axis = &ret->axes[ret->n_axes++];
        *axis = all->axes[i];
        axis->n = n_left < n_fit ? n_left : n_fit;
        n_inner *= axis->n;
        if (axis->n != all->axes[i].n)
            break;
        first /= all->axes[i].n;
    }
    return n_inner;
}

struct gathering {
    const struct wfs_tensor *tensor;
    struct recipe recipe;
    struct box all;
};

static int gather_elems(void *ctx, uint64_t first, uint64_t n_elems, char *out)
{
    const struct gathering *g = ctx;
    const struct wfs_tensor *tensor = g->tensor;
    const struct box *all = &g->all;
    while (n_elems > 0) {
        uint64_t offset = tensor->stored.offset, rest = first;
        for (uint32_t i = 0; i < all->n_axes; i++) {
            offset += rest % all->axes[i].n * all->axes[i].in;
            rest /= all->axes[i].n;
        }
        struct box box;
        const uint64_t n = cut_box(all, first, n_elems, &box);
        const int code = box_read(tensor->stored.source, &g->recipe, &box, offset, out);
        if (code < 0)
            return code;
        out += n * g->recipe.n_out;
        first += n;
        n_elems -= n;
    }
    return 0;
}

int gather_range(gather_read *read, void *ctx, size_t n_elem, uint64_t offset, char *out,
                 size_t n_bytes)
{
    char edge[GATHER_ELEM_MAX];
    while (n_bytes > 0) {
        const size_t skip = (size_t)(offset % n_elem);
        const bool is_whole = skip == 0 && n_bytes >= n_elem;
        const uint64_t n_elems = is_whole ? n_bytes / n_elem : 1;
        size_t n = (size_t)n_elems * n_elem;
        const int code = read(ctx, offset / n_elem, n_elems, is_whole ? out : edge);
        if (code < 0)
            return code;
        if (!is_whole) {
            n = n_elem - skip < n_bytes ? n_elem - skip : n_bytes;
            memcpy(out, edge + skip, n);
        }
        out += n;
        offset += n;
        n_bytes -= n;
    }
    return 0;
}

int gather(const struct wfs_tensor *tensor, uint64_t offset, void *buf, size_t n_bytes)
{
    struct gathering g = {.tensor = tensor};
    if (!recipe_init(&g.recipe, tensor) || !simplify(tensor, &g.recipe, &g.all))
        return -EIO;
    const int code = gather_range(gather_elems, &g, g.recipe.n_out, offset, buf, n_bytes);
    return code < 0 ? code : source_check(tensor->stored.source);
}

uint64_t gather_cost(const struct wfs_tensor *tensor)
{
    struct recipe recipe;
    struct box box;
    if (tensor->n_bytes == 0 || !recipe_init(&recipe, tensor) || !simplify(tensor, &recipe, &box))
        return 0;
    return box_cost(&recipe, &box);
}

/* The first axis inside which the file does not step forward only. */
static uint32_t first_turned(const struct box *box)
{
    for (uint32_t i = 0; i < box->n_axes; i++) {
        for (uint32_t j = i + 1; j < box->n_axes; j++) {
            if (box->axes[j].in != 0 && box->axes[j].in < box->axes[i].in)
                return i;
        }
    }
    return box->n_axes;
}

uint64_t gather_band_bytes(const struct wfs_tensor *tensor)
{
    struct recipe recipe;
    struct box box;
    if (!recipe_init(&recipe, tensor) || !simplify(tensor, &recipe, &box))
        return 0;
    const uint32_t turned = first_turned(&box);
    if (turned == box.n_axes || box.axes[turned].out >= LONG_RUN)
        return 0;
    const struct axis *axis = &box.axes[turned];
    const uint64_t n_rows = axis->n < LARGEST_BAND ? axis->n : LARGEST_BAND;
    uint64_t target = n_rows * READ_AT_ONCE / recipe.n_in * recipe.n_out;
    target = target < SMALLEST_BAND ? SMALLEST_BAND : target;
    target = target > LARGEST_BAND ? LARGEST_BAND : target;
    const uint64_t n_unit = axis->n <= target / axis->out ? axis->n * axis->out : recipe.n_out;
    return target / n_unit * n_unit;
}
