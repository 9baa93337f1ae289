/* SPDX-License-Identifier: MIT */
/*
 * Ranges of encoded elements, one for each tensor, in order of their offsets.
 */
#include <weightfs/array.h>
#include "base/bytes.h"
#include "base/search.h"
#include "format/records/record_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { N_CHUNK = 1024, ELEMENT_MAX = 8 };

enum { MARKER_FALSE = 0xc2 };

/* By dtype. Bools are markers themselves, half floats the integers of their bits. */
static const uint8_t markers[] = {
    [WFS_BOOL] = MARKER_FALSE, [WFS_F32] = 0xca, [WFS_F64] = 0xcb, [WFS_F16] = 0xcd,
    [WFS_BF16] = 0xcd,         [WFS_U8] = 0xcc,  [WFS_U16] = 0xcd, [WFS_U32] = 0xce,
    [WFS_U64] = 0xcf,          [WFS_I8] = 0xd0,  [WFS_I16] = 0xd1, [WFS_I32] = 0xd2,
    [WFS_I64] = 0xd3,
};

struct range {
    uint64_t offset;
    const struct wfs_tensor *tensor;
};

struct encoded {
    struct range *ranges; /* malloc'ed */
    size_t n_ranges, n_room;
};

static unsigned element_bytes(enum wfs_dtype dtype)
{
    return wfs_dtype_bits(dtype) / 8;
}

unsigned record_encoded_bytes(enum wfs_dtype dtype)
{
    if (dtype >= sizeof(markers) || markers[dtype] == 0)
        return 0;
    return dtype == WFS_BOOL ? 1 : 1 + element_bytes(dtype);
}

/* NULL: no range begins at or before the offset. */
static const struct range *range_at(const struct source *source, uint64_t offset)
{
    const struct encoded *encoded = source->ctx;
    const size_t n = search_starts(encoded->ranges, encoded->n_ranges, sizeof(*encoded->ranges),
                                   offsetof(struct range, offset), offset);
    return n == 0 ? NULL : &encoded->ranges[n - 1];
}

/* The marker and the number, big-endian. */
static void encode(enum wfs_dtype dtype, const uint8_t *element, uint8_t out[1 + ELEMENT_MAX])
{
    const unsigned n = element_bytes(dtype);
    out[0] = markers[dtype];
    if (dtype == WFS_BOOL)
        out[0] += element[0] != 0;
    for (unsigned i = 0; i < n; i++)
        out[1 + i] = element[n - 1 - i];
}

/* Reads encoded elements of a tensor from an offset in them. */
static int read_range(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t from,
                      uint8_t *out, size_t n_bytes)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    const unsigned n_element = element_bytes(dtype), n_encoded = record_encoded_bytes(dtype);
    uint8_t elements[N_CHUNK * ELEMENT_MAX], one[1 + ELEMENT_MAX];
    size_t skip = (size_t)(from % n_encoded);
    for (uint64_t at = from / n_encoded; n_bytes > 0;) {
        const size_t n_left = (n_bytes - 1 + skip) / n_encoded + 1;
        const size_t n = n_left < N_CHUNK ? n_left : N_CHUNK;
        const ssize_t n_read =
            wfs_tensor_read_for(io, tensor, at * n_element, elements, (size_t)n * n_element);
        if (n_read != (ssize_t)(n * n_element))
            return n_read < 0 ? (int)n_read : -EIO;
        for (size_t i = 0; i < n; i++) {
            const size_t n_piece = n_bytes < n_encoded - skip ? n_bytes : n_encoded - skip;
            encode(dtype, elements + i * n_element, one);
            memcpy(out, one + skip, n_piece);
            out += n_piece;
            n_bytes -= n_piece;
            skip = 0;
        }
        at += n;
    }
    return 0;
}

/* No tensor of a layout is read beyond its end. */
static int read_encoded(const struct source *source, const struct wfs_io *io, uint64_t offset,
                        void *buf, size_t n_bytes)
{
    const struct range *range = range_at(source, offset);
    if (n_bytes == 0)
        return 0;
    return range == NULL ? -EIO
                         : read_range(io, range->tensor, offset - range->offset, buf, n_bytes);
}

static int check_encoded(const struct source *source, uint64_t offset)
{
    const struct range *range = range_at(source, offset);
    const struct wfs_stored *stored = range == NULL ? NULL : &range->tensor->stored;
    return stored == NULL || stored->source == NULL
               ? 0
               : source_check_at(stored->source, stored->offset);
}

static void free_encoded(void *ctx)
{
    struct encoded *encoded = ctx;
    free(encoded->ranges);
    free(encoded);
}

static const char *path_of(const struct wfs_tensor *tensor)
{
    return tensor->stored.source == NULL ? "" : tensor->stored.source->path;
}

static int make(const char *path, struct source **out)
{
    static const struct source_kind kind = {
        .read = read_encoded, .check = check_encoded, .done = free_encoded};
    return source_new(&kind, path, calloc(1, sizeof(struct encoded)), 0, out);
}

int record_encoded_add(struct source **source, const struct wfs_tensor *tensor,
                       uint64_t *ret_offset)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    const uint64_t n_elems = tensor->n_bytes / element_bytes(dtype);
    uint64_t n_bytes, end;
    if (*source == NULL && make(path_of(tensor), source) < 0)
        return -ENOMEM;
    struct encoded *encoded = (*source)->ctx;
    if (!checked_mul(n_elems, (uint64_t)record_encoded_bytes(dtype), &n_bytes) ||
        !checked_add((*source)->n_bytes, n_bytes, &end))
        return -EOVERFLOW;
    if (array_reserve(&encoded->ranges, sizeof(*encoded->ranges), encoded->n_ranges, 1,
                      &encoded->n_room) < 0)
        return -ENOMEM;
    encoded->ranges[encoded->n_ranges++] = (struct range){(*source)->n_bytes, tensor};
    *ret_offset = (*source)->n_bytes;
    (*source)->n_bytes = end;
    return 0;
}
