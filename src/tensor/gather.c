/* SPDX-License-Identifier: MIT */
/*
 * A byte range of the shown content is cut into boxes (index ranges, one per dimension), the
 * largest first that starts where the range does; partial elements at its ends go through a small
 * buffer.
 *
 * The axes of a box are sorted by their step in the file. The first ones, as long as the gaps
 * between their runs are cheaper to read than to jump over, make a chunk: one read. Chunks are cast
 * when they arrive. If the axis with the shortest step in the output is not part of the chunk, many
 * chunks along it make a tile, small enough for the cache, from which the elements are moved to
 * their places.
 *
 * A band is made when a reader is at its start, comes from the one before, or has been in it
 * already; the first read at a random place is served by itself. Two readers that need the same
 * band make it once. The next one is made ahead when a thread is lent for that.
 */
#include "tensor/gather.h"

#include <weightfs/cleanup.h>
#include <weightfs/interruption.h>
#include <weightfs/io.h>
#include <weightfs/tensor.h>
#include "base/bytes.h"
#include "base/hash.h"
#include "base/reader_lock.h"
#include "base/source.h"
#include "tensor/cast.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* What is done to every element of a tensor; sizes in bytes, whole ones. */
struct recipe {
    enum wfs_dtype from, to;
    size_t n_in, n_out;
    bool is_swapped, is_conjugate, is_negative, is_unrounded;
};

/* axes: `in` is bytes in the file, `out` bytes in what is shown. */
struct box {
    struct axis axes[PERMUTE_MAX_AXES];
    uint32_t n_axes;
};

enum { GATHER_ELEM_MAX = 16 }; /* bytes of the widest element */

/* Returns false when an element is not a whole number of bytes. */
static bool recipe_init(struct recipe *recipe, const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    const unsigned n_from = wfs_dtype_bits((enum wfs_dtype)stored->dtype);
    const unsigned n_to = wfs_dtype_bits((enum wfs_dtype)tensor->dtype);
    const bool is_complex = wfs_dtype_kind((enum wfs_dtype)stored->dtype) == WFS_KIND_COMPLEX;
    *recipe = (struct recipe){
        .from = (enum wfs_dtype)stored->dtype,
        .to = (enum wfs_dtype)tensor->dtype,
        .n_in = n_from / 8,
        .n_out = n_to / 8,
        .is_swapped = stored->is_big_endian && n_from / 8 > (is_complex ? 2 : 1),
        .is_conjugate = stored->is_conjugate && is_complex,
        .is_negative = stored->is_negative,
        .is_unrounded = stored->is_unrounded,
    };
    return n_from % 8 == 0 && n_to % 8 == 0 &&
           (recipe->from == recipe->to || cast_is_possible(recipe->from, recipe->to));
}

/* Returns whether stored elements are shown as they are. */
static bool recipe_is_verbatim(const struct recipe *recipe)
{
    return recipe->from == recipe->to && !recipe->is_swapped && !recipe->is_conjugate &&
           !recipe->is_negative;
}

static void swap(char *elem, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes / 2; i++) {
        const char c = elem[i];
        elem[i] = elem[n_bytes - 1 - i];
        elem[n_bytes - 1 - i] = c;
    }
}

/* Little-endian: flips the sign of a float, or takes the two's complement of an integer. */
static void negate(char *elem, size_t n_bytes, enum wfs_kind kind)
{
    if (kind == WFS_KIND_FLOAT || kind == WFS_KIND_COMPLEX) {
        elem[n_bytes - 1] ^= (char)0x80;
        return;
    }
    unsigned carry = 1;
    for (size_t i = 0; i < n_bytes; i++) {
        carry += (unsigned char)~elem[i];
        elem[i] = (char)carry;
        carry >>= 8;
    }
}

/* Of a complex element each half is a part. */
static void fix_parts(const struct recipe *recipe, char *elems, size_t n_elems)
{
    const enum wfs_kind kind = wfs_dtype_kind(recipe->from);
    const size_t n_parts = kind == WFS_KIND_COMPLEX ? 2 : 1;
    const size_t n_part = recipe->n_in / n_parts;
    for (size_t i = 0; i < n_elems * n_parts; i++) {
        char *part = elems + i * n_part;
        const bool is_imaginary = n_parts == 2 && i % 2 == 1;
        if (recipe->is_swapped)
            swap(part, n_part);
        if (recipe->is_negative != (is_imaginary && recipe->is_conjugate))
            negate(part, n_part, kind);
    }
}

/* Converts n_elems stored elements, which are overwritten on the way. out may be the same as elems
 * when the dtype stays. */
static void recipe_apply(const struct recipe *recipe, char *elems, size_t n_elems, char *out)
{
    if (recipe->is_swapped || recipe->is_conjugate || recipe->is_negative)
        fix_parts(recipe, elems, n_elems);
    if (recipe->from == WFS_F64 && recipe->from != recipe->to && recipe->is_unrounded)
        cast_once(elems, recipe->to, out, n_elems);
    else if (recipe->from != recipe->to)
        cast_elems(recipe->from, elems, recipe->to, out, n_elems);
}

enum {
    TILE = 1 << 18, /* bytes of a tile, and of a chunk, on either side of the cast */
    NARROW = 4096,  /* bytes of a chunk that is one of many in a tile */
    SPARSE = 2048,  /* a gap of this many bytes costs as much as another read */
    CACHE_LINE =
        64, /* chunks in a tile are as many, or twice ..., apart by an odd number of them */
};

struct tiling {
    const struct wfs_io *io;
    const struct source *source;
    const struct recipe *recipe;
    struct axis axes[PERMUTE_MAX_AXES]; /* shortest step in the file first */
    uint64_t extent[PERMUTE_MAX_AXES];  /* indices of each axis in a full tile */
    uint32_t n_axes;
    uint32_t n_chunk; /* leading axes that are read in one piece */
    uint32_t across;  /* axis along which chunks make a tile; n_axes: one chunk is a tile */
    size_t n_row;     /* bytes from chunk to chunk in the tile */
    size_t n_span;    /* bytes of a full chunk in the file */
    bool is_direct;   /* a chunk is one run on both sides: no tile */
    char *tile, *raw; /* raw: a chunk as stored, where it is to be cast */
};

static void sort_axes(struct tiling *t)
{
    for (uint32_t i = 1; i < t->n_axes; i++) {
        const struct axis axis = t->axes[i];
        uint32_t j = i;
        for (; j > 0 && t->axes[j - 1].in > axis.in; j--)
            t->axes[j] = t->axes[j - 1];
        t->axes[j] = axis;
    }
}

/* Takes axes into the chunk, up to that many bytes and not including `before`, while it is cheap.
 */
static void plan_chunk(struct tiling *t, uint64_t n_most, uint32_t before)
{
    uint64_t span = t->recipe->n_in;
    t->n_chunk = 0;
    for (uint32_t i = 0; i < t->n_axes; i++)
        t->extent[i] = 1;
    for (uint32_t i = 0; i < before && t->axes[i].in <= span + SPARSE; i++) {
        const struct axis *axis = &t->axes[i];
        const uint64_t n_fit = axis->in == 0 ? axis->n : (n_most - span) / axis->in + 1;
        t->extent[i] = axis->n < n_fit ? axis->n : n_fit;
        span += (t->extent[i] - 1) * axis->in;
        t->n_chunk = i + 1;
        if (t->extent[i] < axis->n)
            break;
    }
    t->n_span = (size_t)span;
}

/* The axis with the shortest step in the output. */
static uint32_t fastest_axis(const struct tiling *t)
{
    uint32_t fastest = 0;
    for (uint32_t i = 1; i < t->n_axes; i++) {
        if (t->axes[i].out < t->axes[fastest].out)
            fastest = i;
    }
    return fastest;
}

static void plan_row(struct tiling *t)
{
    const size_t n_chunk = t->n_span / t->recipe->n_in * t->recipe->n_out;
    const size_t n_lines = (n_chunk + CACHE_LINE - 1) / CACHE_LINE;
    t->n_row = (n_lines | 1) * CACHE_LINE;
}

static void plan_tile(struct tiling *t)
{
    const struct recipe *recipe = t->recipe;
    const uint32_t fastest = fastest_axis(t);
    const uint64_t scale = recipe->n_out > recipe->n_in ? recipe->n_out / recipe->n_in : 1;
    plan_chunk(t, TILE / scale, t->n_axes);
    t->across = t->n_axes;
    t->is_direct = t->n_axes == 0 || (t->n_chunk == 1 && t->axes[0].in == recipe->n_in &&
                                      t->axes[0].out == recipe->n_out);
    if (t->is_direct && t->n_axes > 0 && recipe_is_verbatim(recipe)) {
        t->extent[0] = t->axes[0].n;
        t->n_span = t->axes[0].n * recipe->n_in;
    }
    if (!t->is_direct && (fastest >= t->n_chunk || t->extent[fastest] < t->axes[fastest].n)) {
        plan_chunk(t, NARROW / scale, fastest);
        plan_row(t);
        const uint64_t n_fit = (TILE / t->n_row + CACHE_LINE) / CACHE_LINE * CACHE_LINE;
        t->across = fastest;
        t->extent[fastest] = t->axes[fastest].n < n_fit ? t->axes[fastest].n : n_fit;
    }
    plan_row(t);
}

/* A chunk of span bytes at offset, as shown, to `to`. */
static int fetch(const struct tiling *t, uint64_t offset, size_t span, char *to)
{
    char *at = t->raw != NULL ? t->raw : to;
    const int code = source_read_unchecked(t->io, t->source, offset, at, span);
    if (code < 0)
        return code;
    if (!recipe_is_verbatim(t->recipe))
        recipe_apply(t->recipe, at, span / t->recipe->n_in, to);
    return 0;
}

static int read_tile(const struct tiling *t, const uint64_t *extent, uint64_t offset, char *out)
{
    const size_t n_in = t->recipe->n_in, n_out = t->recipe->n_out;
    struct axis axes[PERMUTE_MAX_AXES];
    uint32_t n_axes = 0;
    uint64_t span = n_in;
    for (uint32_t i = 0; i < t->n_chunk; i++) {
        const struct axis *axis = &t->axes[i];
        span += (extent[i] - 1) * axis->in;
        axes[n_axes++] = (struct axis){extent[i], axis->in / n_in * n_out, axis->out};
    }
    if (t->is_direct)
        return fetch(t, offset, (size_t)span, out);
    uint64_t n_chunks = 1, step = 0;
    if (t->across < t->n_axes) {
        n_chunks = extent[t->across];
        step = t->axes[t->across].in;
        axes[n_axes++] = (struct axis){n_chunks, t->n_row, t->axes[t->across].out};
    }
    for (uint64_t i = 0; i < n_chunks; i++) {
        const int code = fetch(t, offset + i * step, (size_t)span, t->tile + i * t->n_row);
        if (code < 0)
            return code;
    }
    permute(axes, n_axes, n_out, t->tile, out);
    return 0;
}

/* All tiles, the axes counted through in steps of their extent. */
static int read_tiles(const struct tiling *t, uint64_t offset, char *out)
{
    uint64_t first[PERMUTE_MAX_AXES] = {0}, extent[PERMUTE_MAX_AXES];
    for (;;) {
        for (uint32_t i = 0; i < t->n_axes; i++) {
            const uint64_t n_left = t->axes[i].n - first[i];
            extent[i] = n_left < t->extent[i] ? n_left : t->extent[i];
        }
        const int code = read_tile(t, extent, offset, out);
        if (code < 0)
            return code;
        uint32_t i = 0;
        for (; i < t->n_axes; i++) {
            const struct axis *axis = &t->axes[i];
            if (axis->n - first[i] > t->extent[i]) {
                first[i] += t->extent[i];
                offset += t->extent[i] * axis->in;
                out += t->extent[i] * axis->out;
                break;
            }
            offset -= first[i] * axis->in;
            out -= first[i] * axis->out;
            first[i] = 0;
        }
        if (i == t->n_axes)
            return 0;
    }
}

static struct tiling plan(const struct recipe *recipe, const struct box *box)
{
    struct tiling t = {.recipe = recipe, .n_axes = box->n_axes};
    memcpy(t.axes, box->axes, box->n_axes * sizeof(*box->axes));
    sort_axes(&t);
    plan_tile(&t);
    return t;
}

/* Returns how many bytes the time to read the box is worth, where a read costs as much as a gap
 * that is not worth one. All axes have elements. */
static uint64_t box_cost(const struct recipe *recipe, const struct box *box)
{
    const struct tiling t = plan(recipe, box);
    uint64_t cost = t.n_span + SPARSE;
    for (uint32_t i = 0; i < t.n_axes; i++) {
        const uint64_t n_each = i < t.n_chunk ? t.extent[i] : 1, n_left = t.axes[i].n % n_each;
        const uint64_t n_full = cost;
        if (!checked_mul(cost, t.axes[i].n / n_each, &cost) ||
            (n_left > 0 && !checked_add(cost, n_full - (n_each - n_left) * t.axes[i].in, &cost)))
            return UINT64_MAX;
    }
    return cost;
}

struct gathering {
    const struct wfs_io *io;
    const struct wfs_tensor *tensor;
    struct recipe recipe;
    struct box all;
};

/* Reads the box whose first element is at offset. The caller checks the source afterwards. -EIO,
 * -ENOMEM. */
static int box_read(const struct gathering *g, const struct box *box, uint64_t offset, char *out)
{
    struct tiling t = plan(&g->recipe, box);
    const uint64_t n_chunks = t.across < t.n_axes ? t.extent[t.across] : 1;
    autofree char *tile = t.is_direct ? NULL : malloc(n_chunks * t.n_row);
    const bool is_cast = g->recipe.from != g->recipe.to;
    autofree char *raw = is_cast ? malloc(t.n_span) : NULL;
    t.io = g->io;
    t.source = g->tensor->stored.source;
    t.tile = tile;
    t.raw = raw;
    if ((!t.is_direct && tile == NULL) || (is_cast && raw == NULL))
        return -ENOMEM;
    return read_tiles(&t, offset, out);
}

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
        const int code = box_read(g, &box, offset, out);
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

int gather(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t offset, void *buf,
           size_t n_bytes)
{
    struct gathering g = {.io = io, .tensor = tensor};
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

enum {
    N_BANDS = 64,
    N_BANDS_EACH = 2,     /* of one tensor, while it is read forward */
    BUDGET = 64 << 20,    /* bytes of all bands together */
    PART_BEFORE_NEXT = 8, /* the next band is made ahead after this part of the one before */
};

enum state { FREE, NOTED, MAKING, READY };

struct band {
    enum state state;
    uint64_t tensor; /* see identify */
    uint64_t index;
    uint64_t used; /* when last: larger is later */
    unsigned n_users;
    bool can_stop; /* while it is made: who makes it */
    size_t n_bytes;
    char *bytes; /* NULL unless MAKING or READY */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t made;
    struct band bands[N_BANDS];
    uint64_t n_uses;
    size_t n_bytes;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER, .made = PTHREAD_COND_INITIALIZER};

/* A hash of all that the shown content depends on. The id of a source is never used again. */
static uint64_t identify(const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    const uint64_t parts[] = {stored->source->id,  stored->offset,        stored->dtype,
                              tensor->dtype,       stored->is_big_endian, stored->is_conjugate,
                              stored->is_negative, tensor->shape.rank};
    const size_t n_dims = tensor->shape.rank * sizeof(uint64_t);
    uint64_t hash = hash_bytes(parts, sizeof(parts), hash_seed());
    if (n_dims > 0)
        hash = hash_bytes(tensor->shape.dims, n_dims, hash);
    return n_dims > 0 && stored->strides != NULL ? hash_bytes(stored->strides, n_dims, hash) : hash;
}

static struct band *find(uint64_t tensor, uint64_t index)
{
    for (size_t i = 0; i < N_BANDS; i++) {
        struct band *band = &cache.bands[i];
        if (band->state != FREE && band->tensor == tensor && band->index == index)
            return band;
    }
    return NULL;
}

static void forget(struct band *band)
{
    free(band->bytes);
    cache.n_bytes -= band->bytes != NULL ? band->n_bytes : 0;
    *band = (struct band){.state = FREE};
}

/* The free one, else the one not in use that was used longest ago; NULL when all are in use. */
static struct band *oldest(bool with_bytes)
{
    struct band *best = NULL;
    for (size_t i = 0; i < N_BANDS; i++) {
        struct band *band = &cache.bands[i];
        if (band->state == MAKING || band->n_users > 0 || (with_bytes && band->bytes == NULL))
            continue;
        if (best == NULL || band->used < best->used)
            best = band;
    }
    return best;
}

static struct band *note(uint64_t tensor, uint64_t index)
{
    struct band *band = oldest(false);
    if (band == NULL)
        return NULL;
    forget(band);
    *band = (struct band){.state = NOTED, .tensor = tensor, .index = index, .used = ++cache.n_uses};
    return band;
}

/* A reader who goes forward leaves bands behind: the oldest of the tensor's, when it has several.
 */
static struct band *left_behind(uint64_t tensor, size_t n_bytes)
{
    struct band *best = NULL;
    size_t n_bands = 0;
    for (size_t i = 0; i < N_BANDS; i++) {
        struct band *band = &cache.bands[i];
        if (band->bytes == NULL || band->tensor != tensor)
            continue;
        n_bands++;
        if (band->state == READY && band->n_users == 0 && band->n_bytes == n_bytes &&
            (best == NULL || band->used < best->used))
            best = band;
    }
    return n_bands < N_BANDS_EACH ? NULL : best;
}

/* Room for the bytes of a band of the tensor, or NULL. */
static char *take_room(uint64_t tensor, size_t n_bytes)
{
    struct band *behind = left_behind(tensor, n_bytes);
    if (behind != NULL) {
        char *bytes = behind->bytes;
        *behind = (struct band){.state = FREE};
        return bytes;
    }
    while (cache.n_bytes + n_bytes > BUDGET) {
        struct band *band = oldest(true);
        if (band == NULL)
            return NULL;
        forget(band);
    }
    char *bytes = io_alloc(n_bytes);
    cache.n_bytes += bytes != NULL ? n_bytes : 0;
    return bytes;
}

/* Under the lock, which is released while the bytes are made. */
static void make(const struct wfs_io *io, struct band *band, const struct wfs_tensor *tensor,
                 uint64_t n_band)
{
    const uint64_t start = band->index * n_band, n_left = tensor->n_bytes - start;
    const size_t n_bytes = n_left < n_band ? (size_t)n_left : (size_t)n_band;
    char *bytes = take_room(band->tensor, n_bytes);
    if (bytes == NULL)
        return;
    band->state = MAKING;
    band->can_stop = wfs_io_can_stop(io);
    band->bytes = bytes;
    band->n_bytes = n_bytes;
    pthread_mutex_unlock(&cache.lock);
    const int code = gather(io, tensor, start, bytes, n_bytes);
    pthread_mutex_lock(&cache.lock);
    band->state = READY;
    if (code < 0)
        forget(band);
    pthread_cond_broadcast(&cache.made);
}

/* The band with its bytes and one more user, or NULL when the caller should gather for himself. */
static struct band *acquire(const struct wfs_io *io, const struct wfs_tensor *tensor,
                            uint64_t index, uint64_t n_band, bool at_start)
{
    const uint64_t id = identify(tensor);
    struct band *band = find(id, index);
    while (band != NULL && band->state == MAKING) {
        if (reader_wait(io, &cache.made, &cache.lock, band->can_stop) < 0)
            return NULL;
        band = find(id, index);
    }
    const struct band *before = index == 0 ? NULL : find(id, index - 1);
    const bool is_wanted = at_start || band != NULL || (before != NULL && before->state == READY);
    if (band == NULL)
        band = note(id, index);
    if (band != NULL && band->state == NOTED && is_wanted)
        make(io, band, tensor, n_band);
    if (band == NULL || band->state != READY)
        return NULL;
    band->used = ++cache.n_uses;
    band->n_users++;
    return band;
}

static void release(struct band *band)
{
    pthread_mutex_lock(&cache.lock);
    band->n_users--;
    pthread_mutex_unlock(&cache.lock);
}

/* A piece inside of one band. */
static int read_piece(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t offset,
                      char *buf, size_t n_bytes, uint64_t n_band)
{
    pthread_mutex_lock(&cache.lock);
    struct band *band = acquire(io, tensor, offset / n_band, n_band, offset % n_band == 0);
    pthread_mutex_unlock(&cache.lock);
    if (band == NULL)
        return gather(io, tensor, offset, buf, n_bytes);
    memcpy(buf, band->bytes + offset % n_band, n_bytes);
    release(band);
    return source_check(tensor->stored.source);
}

int band_read(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t offset, void *buf,
              size_t n_bytes)
{
    const uint64_t n_band = gather_band_bytes(tensor);
    if (n_band == 0)
        return gather(io, tensor, offset, buf, n_bytes);
    char *out = buf;
    while (n_bytes > 0) {
        const uint64_t n_left = n_band - offset % n_band;
        const size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
        const bool is_whole =
            offset % n_band == 0 && (n == n_left || offset + n == tensor->n_bytes);
        const int code = is_whole ? gather(io, tensor, offset, out, n)
                                  : read_piece(io, tensor, offset, out, n, n_band);
        if (code < 0)
            return code;
        out += n;
        offset += n;
        n_bytes -= n;
    }
    return 0;
}

void band_read_ahead(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t offset)
{
    const uint64_t n_band = gather_band_bytes(tensor);
    if (n_band == 0 || offset % n_band < n_band / PART_BEFORE_NEXT ||
        tensor->n_bytes - offset <= n_band - offset % n_band)
        return;
    const uint64_t id = identify(tensor), index = offset / n_band;
    pthread_mutex_lock(&cache.lock);
    const struct band *here = find(id, index);
    const bool is_here = here != NULL && here->state == READY;
    struct band *next = find(id, index + 1);
    if (is_here && next == NULL)
        next = note(id, index + 1);
    if (is_here && next != NULL && next->state == NOTED)
        make(io, next, tensor, n_band);
    pthread_mutex_unlock(&cache.lock);
}
