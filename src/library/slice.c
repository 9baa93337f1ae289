/* SPDX-License-Identifier: MIT */
/*
 * Reading tensors for a caller. A slice is a tensor with other strides: what reads any tensor reads
 * only what it needs of it. Dimensions that run backwards are read forwards, and turned in memory.
 */
#include "library/call.h"

#include "base/bytes.h"
#include "program/checkpoint.h"
#include "tensor/cast.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { N_PIECE = 64 << 20 }; /* bytes between two calls of a progress callback */

/* Reads whole what a range shows, in one piece where nobody asks to stop. */
static int read_range(const struct call *call, const struct wfs_tensor *tensor, uint64_t offset,
                      char *buf, uint64_t n_bytes)
{
    const struct wfs_io *io = call_io(call);
    for (uint64_t n_done = 0; n_done < n_bytes;) {
        const uint64_t n_left = n_bytes - n_done;
        const size_t n_now = (size_t)(io == NULL || n_left < N_PIECE ? n_left : N_PIECE);
        const ssize_t n = wfs_tensor_read_for(io, tensor, offset + n_done, buf + n_done, n_now);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        n_done += (uint64_t)n;
        const int code = call_step(call, n_done, n_bytes);
        if (code < 0 && n_done < n_bytes)
            return code;
    }
    return 0;
}

int64_t wfs_read(const struct wfs_tensor *tensor, uint64_t offset, void *buf, uint64_t n_bytes,
                 const struct wfs_options *options, struct wfs_error *err)
{
    auto_call struct call call;
    int code = call_init(&call, options, 0, NULL, err);
    if (code < 0)
        return code;
    const uint64_t n_left = offset < tensor->n_bytes ? tensor->n_bytes - offset : 0;
    const uint64_t n = n_bytes < n_left ? n_bytes : n_left;
    code = n > INT64_MAX ? -EOVERFLOW : read_range(&call, tensor, offset, buf, n);
    return code < 0 ? wfs_tensor_fail_read(err, tensor, code) : (int64_t)n;
}

/* ---- slices ---- */

struct selection {
    struct wfs_tensor shown; /* the tensor, in the dtype that is asked for */
    struct wfs_numbers numbers;
    struct source *source;    /* of what it shows, where that is cast twice; NULL: it is not */
    struct wfs_tensor tensor; /* the part of it */
    bool is_packed;           /* elements of less than a byte, or in blocks */
    uint64_t offset;          /* where the part begins in what is shown, of packed ones */
    uint64_t *dims;           /* of the part, and then its strides */
};

static void selection_done(struct selection *selection)
{
    wfs_numbers_done(&selection->numbers);
    source_free(selection->source);
    free(selection->dims);
}

static int fail(struct wfs_error *err, const struct wfs_tensor *tensor, const char *text)
{
    return wfs_fail(err, EINVAL, "tensor '%s': %s", wfs_quote(tensor->key).text, text);
}

/* Shows the tensor in another dtype. What is cast already is cast again, from what it shows. */
static int convert(struct selection *selection, const struct wfs_tensor *tensor,
                   enum wfs_dtype dtype, struct wfs_error *err)
{
    struct wfs_tensor *shown = &selection->shown;
    int code = wfs_numbers_init(&selection->numbers, tensor);
    *shown = *selection->numbers.tensor;
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    if (code < 0 || (shown->dtype != dtype && !cast_is_possible(shown->dtype, dtype)))
        return wfs_fail(err, EINVAL, "tensor '%s': %s cannot be converted to %s",
                        wfs_quote(tensor->key).text, wfs_dtype_name(tensor->dtype),
                        wfs_dtype_name(dtype));
    if (shown->dtype == dtype)
        return 0;
    if (shown->dtype != shown->stored.dtype) {
        if (shown_source(shown, &selection->source) < 0)
            return wfs_fail_memory(err);
        shown->stored = (struct wfs_stored){.source = selection->source, .dtype = shown->dtype};
    }
    shown->dtype = (uint8_t)dtype;
    return wfs_shape_bytes(&shown->shape, dtype, &shown->n_bytes) < 0
               ? fail(err, tensor, "the result is too large")
               : 0;
}

/* Returns the smallest index of a slice of a dimension; step: bounds of the others. -EINVAL. */
static int check(const struct wfs_slice *slice, uint64_t dim, uint64_t *ret_least)
{
    const uint64_t step = slice->step < 0 ? -(uint64_t)slice->step : (uint64_t)slice->step;
    uint64_t span = 0;
    if (slice->count == 0)
        return 0;
    if (slice->start >= dim || (slice->step == 0 && slice->count > 1) ||
        !checked_mul(step, slice->count - 1, &span))
        return -EINVAL;
    if (slice->step < 0 ? span > slice->start : span >= dim - slice->start)
        return -EINVAL;
    *ret_least = slice->step < 0 ? slice->start - span : slice->start;
    return 0;
}

/* Elements that do not begin at a byte of their own: the part must be one run of whole blocks. */
static int select_packed(struct selection *selection, const struct wfs_slice *slices,
                         size_t n_slices, struct wfs_error *err)
{
    struct wfs_tensor *part = &selection->tensor;
    const struct wfs_shape *whole = &selection->shown.shape;
    const struct wfs_block block = wfs_dtype_block((enum wfs_dtype)part->dtype);
    uint64_t n_first = 0, n_elems = 1, step = 1;
    bool is_whole = true, is_run = true;
    for (uint32_t i = whole->rank; i-- > 0; step *= whole->dims[i]) {
        const bool is_all = i >= n_slices || slices[i].count == whole->dims[i];
        is_run &= is_whole ? i >= n_slices || slices[i].step == 1 || slices[i].count == 1
                           : slices[i].count == 1;
        is_whole &= is_all;
        n_first += i < n_slices ? slices[i].start * step : 0;
        n_elems *= part->shape.dims[i];
    }
    if (n_elems > 0 && (!is_run || n_first % block.n_elems != 0 || n_elems % block.n_elems != 0))
        return fail(err, &selection->shown,
                    block.n_elems > 8 ? "its elements lie in blocks: convert them to F32"
                                      : "its elements are less than a byte: read whole bytes");
    selection->is_packed = true;
    selection->offset = n_first / block.n_elems * block.n_bytes;
    part->n_bytes = n_elems / block.n_elems * block.n_bytes;
    return 0;
}

/* Makes the part of what is shown. */
static int select_part(struct selection *selection, const struct wfs_slice *slices, size_t n_slices,
                       struct wfs_error *err)
{
    const struct wfs_tensor *whole = &selection->shown;
    const uint32_t rank = whole->shape.rank;
    struct wfs_tensor *part = &selection->tensor;
    const enum wfs_dtype stored = (enum wfs_dtype)whole->stored.dtype;
    *part = *whole;
    selection->dims = calloc(2 * (size_t)rank + 1, sizeof(*selection->dims));
    if (selection->dims == NULL)
        return wfs_fail_memory(err);
    uint64_t *dims = selection->dims, *strides = dims + rank, n_first = 0, dense = 1;
    for (uint32_t i = rank; i-- > 0; dense *= whole->shape.dims[i]) {
        const struct wfs_slice all = {0, whole->shape.dims[i], 1};
        const struct wfs_slice *slice = i < n_slices ? &slices[i] : &all;
        const uint64_t stride = whole->stored.strides != NULL ? whole->stored.strides[i] : dense;
        uint64_t least = 0;
        if (check(slice, all.count, &least) < 0)
            return wfs_fail(err, EINVAL,
                            "tensor '%s': a slice does not fit dimension %" PRIu32 ", which has %s",
                            wfs_quote(whole->key).text, i,
                            wfs_count_as(all.count, "index", "indices").text);
        dims[i] = slice->count;
        strides[i] = stride * (slice->step < 0 ? -(uint64_t)slice->step : (uint64_t)slice->step);
        n_first += least * stride;
    }
    part->shape.dims = dims;
    if (wfs_dtype_bits((enum wfs_dtype)part->dtype) % 8 != 0)
        return select_packed(selection, slices, n_slices, err);
    part->stored.strides = strides;
    part->stored.offset += n_first * (wfs_dtype_bits(stored) / 8);
    return wfs_shape_bytes(&part->shape, (enum wfs_dtype)part->dtype, &part->n_bytes) < 0
               ? fail(err, whole, "the result is too large")
               : 0;
}

/* Turns a dimension of n blocks of n_block bytes, n_outer times. */
static void turn(char *bytes, uint64_t n_outer, uint64_t n, size_t n_block)
{
    for (uint64_t k = 0; k < n_outer; k++, bytes += n * n_block) {
        for (uint64_t i = 0, j = n; i + 1 < j; i++) {
            char *a = bytes + i * n_block, *b = bytes + --j * n_block;
            for (size_t m = 0; m < n_block; m++) {
                const char c = a[m];
                a[m] = b[m];
                b[m] = c;
            }
        }
    }
}

static void turn_all(const struct wfs_tensor *part, const struct wfs_slice *slices, size_t n_slices,
                     char *buf)
{
    uint64_t n_outer = 1, n_inner = part->n_bytes;
    for (uint32_t i = 0; i < part->shape.rank && i < n_slices && part->n_bytes > 0; i++) {
        const uint64_t n = part->shape.dims[i];
        n_inner /= n;
        if (slices[i].step < 0 && n > 1)
            turn(buf, n_outer, n, (size_t)n_inner);
        n_outer *= n;
    }
}

static int find_dtype(const struct wfs_tensor *tensor, const char *name, enum wfs_dtype *ret,
                      struct wfs_error *err)
{
    unsigned n_elems, n_bytes;
    *ret = (enum wfs_dtype)tensor->dtype;
    if (name == NULL)
        return 0;
    const int code = wfs_dtype_size(name, &n_elems, &n_bytes, err);
    if (code == 0)
        (void)wfs_dtype_spelled(name, strlen(name), ret);
    return code;
}

int64_t wfs_read_slice(const struct wfs_tensor *tensor, const struct wfs_slice *slices,
                       size_t n_slices, const char *dtype, void *buf, uint64_t n_bytes,
                       const struct wfs_options *options, struct wfs_error *err)
{
    auto_call struct call call;
    cleanup(selection_done) struct selection selection = {.shown = *tensor};
    enum wfs_dtype to;
    int code = call_init(&call, options, 0, NULL, err);
    if (code == 0)
        code = find_dtype(tensor, dtype, &to, err);
    if (code == 0 && n_slices > 0 && tensor->dtype == WFS_OPAQUE)
        code = fail(err, tensor, "its elements are of no known size: read all bytes");
    if (code == 0 && n_slices > tensor->shape.rank)
        code = fail(err, tensor, "more slices than dimensions");
    if (code == 0 && to != tensor->dtype)
        code = convert(&selection, tensor, to, err);
    selection.tensor = selection.shown;
    if (code == 0 && n_slices > 0)
        code = select_part(&selection, slices, n_slices, err);
    if (code < 0)
        return code;
    const struct wfs_tensor *part = &selection.tensor;
    if (part->n_bytes > INT64_MAX)
        return fail(err, tensor, "the result is too large");
    if (buf == NULL)
        return (int64_t)part->n_bytes;
    if (n_bytes < part->n_bytes)
        return wfs_fail(err, ENOBUFS, "tensor '%s': the result has %s, the buffer %" PRIu64,
                        wfs_quote(tensor->key).text, wfs_count(part->n_bytes, "byte").text,
                        n_bytes);
    code = read_range(&call, selection.is_packed ? &selection.shown : part, selection.offset, buf,
                      part->n_bytes);
    if (code < 0)
        return wfs_tensor_fail_read(err, tensor, code);
    turn_all(part, slices, n_slices, buf);
    return (int64_t)part->n_bytes;
}
