/* SPDX-License-Identifier: MIT */
/*
 * A byte range of the shown content is cut into boxes (index ranges, one per dimension). In a box
 * the dimension with the smallest step in the file is read as runs, each stored run once, and
 * scattered; the others are counted through, repeating dimensions (stride 0) innermost so that
 * their run is still at hand.
 */
#include "tensor/gather.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/source.h"

enum {
    MAX_DIMS = 64,      /* a product of more dimensions over 1 passes 2^64 */
    MAX_ELEM = 16,      /* bytes of the widest element */
    N_PIECE = 16384,    /* bytes read at once for a strided run */
    SPARSE_STEP = 2048, /* bytes: from here on a read per element is cheaper */
};

struct dim {
    uint64_t n;      /* indices */
    uint64_t stored; /* bytes from one to the next in the file */
    uint64_t shown;  /* bytes from one to the next in what is shown */
};

struct box {
    struct dim dims[MAX_DIMS];
    uint32_t rank;
};

struct job {
    const struct source *source;
    size_t n_elem; /* bytes of an element */
};

/* Drops dimensions of size 1 and joins those that step through the file as one. False: too many,
 * the shape is not to be trusted. */
static bool simplify(const struct wfs_tensor *tensor, uint64_t n_elem, struct box *box)
{
    const struct wfs_shape *shape = &tensor->shape;
    const uint64_t *strides = tensor->stored.strides;
    uint64_t step = n_elem; /* shown bytes of one index */
    box->rank = 0;
    for (uint32_t i = shape->rank; i-- > 0;) {
        const uint64_t n = shape->dims[i];
        const uint64_t stored = strides == NULL ? step : strides[i] * n_elem;
        if (n == 1)
            continue;
        struct dim *inner = box->rank > 0 ? &box->dims[box->rank - 1] : NULL;
        if (inner != NULL && stored == inner->stored * inner->n) {
            inner->n *= n;
        } else {
            if (box->rank == MAX_DIMS)
                return false;
            box->dims[box->rank++] = (struct dim){n, stored, step};
        }
        step *= n;
    }
    /* dims[0] is the innermost. */
    return true;
}

/* Elements of one run at *at, stepping through the file, to out, stepping through what is shown. */
static void scatter(char *out, uint64_t out_step, const char *in, uint64_t in_step, uint64_t n,
                    size_t n_elem)
{
    for (uint64_t i = 0; i < n; i++, out += out_step, in += in_step) {
        switch (n_elem) {
        case 1:
            *out = *in;
            break;
        case 2:
            memcpy(out, in, 2);
            break;
        case 4:
            memcpy(out, in, 4);
            break;
        case 8:
            memcpy(out, in, 8);
            break;
        default:
            memcpy(out, in, n_elem);
        }
    }
}

static int read_run(const struct job *job, struct dim run, uint64_t offset, char *out)
{
    char piece[N_PIECE];
    if (run.stored == job->n_elem && run.shown == job->n_elem)
        return source_read(job->source, offset, out, run.n * job->n_elem);
    const uint64_t n_at_once =
        run.stored >= SPARSE_STEP ? 1 : (N_PIECE - job->n_elem) / run.stored + 1;
    while (run.n > 0) {
        const uint64_t n = run.n < n_at_once ? run.n : n_at_once;
        const size_t n_read = (size_t)((n - 1) * run.stored + job->n_elem);
        if (source_read(job->source, offset, piece, n_read) < 0)
            return -EIO;
        scatter(out, run.shown, piece, run.stored, n, job->n_elem);
        out += n * run.shown;
        offset += n * run.stored;
        run.n -= n;
    }
    return 0;
}

/* The run again, for an index of a repeating dimension: the bytes are in `from` already. */
static void repeat_run(const struct job *job, struct dim run, const char *from, char *out)
{
    scatter(out, run.shown, from, run.shown, run.n, job->n_elem);
}

/* Moves the dimension to read as runs to the front, and repeating ones behind it. */
static void arrange(struct box *box)
{
    for (uint32_t i = 1; i < box->rank; i++) {
        const struct dim dim = box->dims[i];
        uint32_t j = i;
        for (; j > 0 && dim.stored < box->dims[j - 1].stored; j--)
            box->dims[j] = box->dims[j - 1];
        box->dims[j] = dim;
    }
    uint32_t run = 0; /* the first that is no repetition */
    while (run < box->rank && box->dims[run].stored == 0)
        run++;
    if (run == box->rank)
        return;
    const struct dim dim = box->dims[run];
    memmove(&box->dims[1], &box->dims[0], run * sizeof(dim));
    box->dims[0] = dim;
}

/* A run of one element stands in where every dimension repeats. */
static struct dim take_run(struct box *box, const struct job *job)
{
    if (box->rank == 0 || box->dims[0].stored == 0)
        return (struct dim){1, job->n_elem, job->n_elem};
    const struct dim run = box->dims[0];
    memmove(&box->dims[0], &box->dims[1], --box->rank * sizeof(run));
    return run;
}

static int gather_box(const struct job *job, struct box box, uint64_t offset, char *out)
{
    uint64_t index[MAX_DIMS] = {0};
    arrange(&box);
    const struct dim run = take_run(&box, job);
    const char *last = NULL;
    uint64_t last_offset = 0;
    for (;;) {
        if (last != NULL && last_offset == offset)
            repeat_run(job, run, last, out);
        else if (read_run(job, run, offset, out) < 0)
            return -EIO;
        last = out;
        last_offset = offset;
        uint32_t i = 0;
        for (; i < box.rank; i++) {
            const struct dim *dim = &box.dims[i];
            if (++index[i] < dim->n) {
                offset += dim->stored;
                out += dim->shown;
                break;
            }
            offset -= (dim->n - 1) * dim->stored;
            out -= (dim->n - 1) * dim->shown;
            index[i] = 0;
        }
        if (i == box.rank)
            return 0;
    }
}

/* n_elems elements from the one numbered first: the largest box that starts there, then the next.
 */
static int gather_elems(const struct job *job, const struct box *all, uint64_t base, uint64_t first,
                        uint64_t n_elems, char *out)
{
    while (n_elems > 0) {
        struct box box = {.rank = 0};
        uint64_t offset = base, n_inner = 1, rest = first;
        for (uint32_t i = 0; i < all->rank; i++) {
            const uint64_t index = rest % all->dims[i].n;
            rest /= all->dims[i].n;
            offset += index * all->dims[i].stored;
        }
        rest = first;
        for (uint32_t i = 0; i < all->rank && n_elems >= n_inner; i++) {
            const uint64_t index = rest % all->dims[i].n;
            const uint64_t n_left = all->dims[i].n - index;
            const uint64_t n_fit = n_elems / n_inner;
            box.dims[box.rank] = all->dims[i];
            box.dims[box.rank].n = n_left < n_fit ? n_left : n_fit;
            n_inner *= box.dims[box.rank++].n;
            if (index != 0 || box.dims[box.rank - 1].n != all->dims[i].n)
                break;
            rest /= all->dims[i].n;
        }
        if (gather_box(job, box, offset, out) < 0)
            return -EIO;
        out += n_inner * job->n_elem;
        first += n_inner;
        n_elems -= n_inner;
    }
    return 0;
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

/* Byte order and sign bits, on whole elements in stored order. */
static void resolve(const struct wfs_tensor *tensor, char *elems, uint64_t n_elems, size_t n_elem)
{
    const struct wfs_stored *stored = &tensor->stored;
    const enum wfs_kind kind = wfs_dtype_kind((enum wfs_dtype)stored->dtype);
    const bool is_complex = kind == WFS_KIND_COMPLEX;
    const size_t n_part = is_complex ? n_elem / 2 : n_elem;
    const bool is_swapped = stored->is_big_endian && n_part > 1;
    if (!is_swapped && !stored->is_conjugate && !stored->is_negative)
        return;
    for (uint64_t i = 0; i < n_elems * (n_elem / n_part); i++) {
        char *part = elems + i * n_part;
        const bool is_imaginary = is_complex && i % 2 == 1;
        if (is_swapped)
            swap(part, n_part);
        if (stored->is_negative != (is_imaginary && stored->is_conjugate))
            negate(part, n_part, kind);
    }
}

static int gather_whole(const struct wfs_tensor *tensor, const struct job *job,
                        const struct box *all, uint64_t first, uint64_t n_elems, char *out)
{
    if (gather_elems(job, all, tensor->stored.offset, first, n_elems, out) < 0)
        return -EIO;
    resolve(tensor, out, n_elems, job->n_elem);
    return 0;
}

int gather(const struct wfs_tensor *tensor, uint64_t offset, void *buf, size_t n_bytes)
{
    const size_t n_elem = wfs_dtype_bits((enum wfs_dtype)tensor->stored.dtype) / 8;
    struct box all;
    if (n_elem == 0 || !simplify(tensor, n_elem, &all))
        return -EIO;
    const struct job job = {tensor->stored.source, n_elem};
    char *out = buf;
    char edge[MAX_ELEM];
    while (n_bytes > 0) {
        const size_t skip = (size_t)(offset % n_elem);
        const uint64_t first = offset / n_elem;
        size_t n;
        if (skip == 0 && n_bytes >= n_elem) {
            n = n_bytes / n_elem * n_elem;
            if (gather_whole(tensor, &job, &all, first, n / n_elem, out) < 0)
                return -EIO;
        } else {
            n = n_elem - skip < n_bytes ? n_elem - skip : n_bytes;
            if (gather_whole(tensor, &job, &all, first, 1, edge) < 0)
                return -EIO;
            memcpy(out, edge + skip, n);
        }
        out += n;
        offset += n;
        n_bytes -= n;
    }
    return 0;
}
