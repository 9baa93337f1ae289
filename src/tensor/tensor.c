/* SPDX-License-Identifier: MIT */
/*
 * Reading a tensor as it is shown.
 */
#include <weightfs/tensor.h>

#include <weightfs/interruption.h>

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/source.h"
#include "tensor/band.h"
#include "tensor/gather.h"

enum { SMALLEST_PIECE = 1 << 20 }; /* bytes */

const char *wfs_tensor_origin(const struct wfs_tensor *tensor)
{
    return tensor->origin != NULL ? tensor->origin : tensor->key;
}

const char *wfs_tensor_attr(const struct wfs_tensor *tensor, const char *name)
{
    for (const struct wfs_text *text = tensor->attrs; text != NULL; text = text->next) {
        if (strcmp(text->name, name) == 0)
            return text->value;
    }
    return NULL;
}

/* Row-major and dense, whatever the strides of dimensions of size 1 say. */
static bool is_dense(const struct wfs_tensor *tensor)
{
    const uint64_t *strides = tensor->stored.strides;
    if (strides == NULL || tensor->n_bytes == 0 || tensor->dtype == WFS_OPAQUE)
        return true;
    uint64_t step = 1;
    for (uint32_t i = tensor->shape.rank; i-- > 0;) {
        const uint64_t dim = tensor->shape.dims[i];
        if (dim != 1 && strides[i] != step)
            return false;
        step *= dim; /* at most the number of elements */
    }
    return true;
}

static bool is_verbatim(const struct wfs_stored *stored, enum wfs_dtype dtype)
{
    const bool is_swapped = stored->is_big_endian && wfs_dtype_bits(dtype) > 8;
    return stored->dtype == dtype && !is_swapped && !stored->is_conjugate && !stored->is_negative;
}

bool wfs_tensor_is_plain(const struct wfs_tensor *tensor)
{
    return is_verbatim(&tensor->stored, (enum wfs_dtype)tensor->dtype) && is_dense(tensor);
}

bool wfs_tensor_extent(const struct wfs_tensor *tensor, int *ret_fd, uint64_t *ret_offset)
{
    const struct wfs_stored *stored = &tensor->stored;
    if (tensor->trouble != NULL || stored->source == NULL || !source_is_file(stored->source) ||
        !wfs_tensor_is_plain(tensor))
        return false;
    /* Whoever copies from the descriptor would not notice a tensor that is cut short. */
    if (stored->offset > stored->source->n_bytes ||
        tensor->n_bytes > stored->source->n_bytes - stored->offset)
        return false;
    *ret_fd = stored->source->fd;
    *ret_offset = stored->offset;
    return true;
}

/* Tells a source on the network how far a reader of the tensor may go on, unless more is known. */
static void expect(const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    uint64_t n_bytes = tensor->n_bytes, n_elems;
    if (!stored->source->is_remote || source_expected(stored->source, stored->offset) != 0)
        return;
    if (wfs_shape_count(&tensor->shape, &n_elems) == 0 && n_elems <= UINT64_MAX / 128 &&
        tensor->dtype != WFS_OPAQUE)
        n_bytes = n_elems * wfs_dtype_bits((enum wfs_dtype)stored->dtype) / 8;
    source_expect(stored->source, stored->offset, n_bytes);
}

ssize_t wfs_tensor_read(const struct wfs_tensor *tensor, uint64_t offset, void *buf, size_t n_bytes)
{
    if (tensor->trouble != NULL)
        return -EIO;
    if (offset >= tensor->n_bytes)
        return 0;
    const uint64_t n_left = tensor->n_bytes - offset;
    size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
    n = n < SSIZE_MAX ? n : SSIZE_MAX;
    if (tensor->stored.source == NULL)
        return -EIO;
    int code = wfs_interruption_check();
    expect(tensor);
    if (code == 0)
        code = wfs_tensor_is_plain(tensor)
                   ? source_read(tensor->stored.source, tensor->stored.offset + offset, buf, n)
                   : band_read(tensor, offset, buf, n);
    return code < 0 ? code : (ssize_t)n;
}

/* Nothing to read from, or nothing to be made. */
static bool is_read_as_it_is(const struct wfs_tensor *tensor)
{
    return tensor->trouble != NULL || tensor->stored.source == NULL || wfs_tensor_is_plain(tensor);
}

size_t wfs_tensor_piece_bytes(const struct wfs_tensor *tensor)
{
    const uint64_t n_band = is_read_as_it_is(tensor) ? 0 : gather_band_bytes(tensor);
    const uint64_t n_piece = n_band == 0 ? SMALLEST_PIECE : n_band;
    return (size_t)(n_piece < tensor->n_bytes ? n_piece : tensor->n_bytes);
}

void wfs_tensor_read_ahead(const struct wfs_tensor *tensor, uint64_t offset)
{
    if (offset < tensor->n_bytes && !is_read_as_it_is(tensor))
        band_read_ahead(tensor, offset);
}

const char *wfs_tensor_trouble(const struct wfs_tensor *tensor)
{
    const struct source *source = tensor->stored.source;
    if (tensor->trouble != NULL || source == NULL || source->trouble == NULL)
        return tensor->trouble;
    return source->trouble(source, tensor->stored.offset);
}

int wfs_tensor_check_source(const struct wfs_tensor *tensor)
{
    const struct source *source = tensor->stored.source;
    return source == NULL ? 0 : source_check_at(source, tensor->stored.offset);
}
