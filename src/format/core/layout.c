/* SPDX-License-Identifier: MIT */
/*
 * Layouts: a planned file as a list of segments, and any range of its bytes.
 */
#include "format/core/layout.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/layout.h>
#include "base/arena.h"
#include "base/bytes.h"
#include "base/utf8.h"
#include "catalog/catalog.h"
#include "format/core/format.h"
#include "tensor/blocks.h"
#include "tensor/cast.h"

#include <zlib.h>

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { N_CRC_PARTS = 16 };

/* A tensor that cannot be read cannot be saved: better said before a byte is written. */
int layout_check_tensors(const struct wfs_catalog *catalog, struct wfs_error *err)
{
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        if (wfs_tensor_is_damaged(tensor))
            return wfs_tensor_fail_read(err, tensor, -EIO);
    }
    return 0;
}

struct wfs_layout *layout_new(const struct wfs_format *format, const struct wfs_catalog *catalog)
{
    struct wfs_layout *layout = calloc(1, sizeof(*layout));
    if (layout != NULL) {
        layout->format = format;
        layout->catalog = catalog;
    }
    return layout;
}

/* Fails where the format cannot store a tensor of blocks, with what all of them take as numbers. */
static int check_blocks(const struct wfs_format *format, const struct wfs_catalog *catalog,
                        struct wfs_error *err)
{
    const struct wfs_tensor *first = NULL;
    uint64_t n_bytes[2] = {0};
    static const enum wfs_dtype dtypes[2] = {WFS_BF16, WFS_F32};
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const bool is_lost = wfs_dtype_has_blocks((enum wfs_dtype)tensor->dtype) &&
                             !format->functions->stores(tensor);
        first = first == NULL && is_lost ? tensor : first;
        for (size_t k = 0; k < 2; k++) {
            uint64_t n = tensor->n_bytes;
            if (is_lost && wfs_shape_bytes(&tensor->shape, dtypes[k], &n) < 0)
                n = UINT64_MAX;
            n_bytes[k] = checked_add(n_bytes[k], n, &n_bytes[k]) ? n_bytes[k] : UINT64_MAX;
        }
    }
    return first == NULL
               ? 0
               : wfs_fail(err, EOPNOTSUPP,
                          "tensor '%s' is %s, which %s cannot store: cast=BF16 decodes blocks (%s "
                          "in all), "
                          "cast=F32 does so exactly (%s)",
                          wfs_quote(first->key).text, wfs_dtype_name((enum wfs_dtype)first->dtype),
                          format->title, wfs_count(n_bytes[0], "byte").text,
                          wfs_count(n_bytes[1], "byte").text);
}

int wfs_layout_new(const struct wfs_format *format, const struct wfs_catalog *catalog,
                   struct wfs_layout **out, struct wfs_error *err)
{
    if (format->functions->plan == NULL)
        return wfs_fail(err, EOPNOTSUPP, "%s files can be read, but not written", format->name);
    int code = layout_check_tensors(catalog, err);
    if (code == 0)
        code = check_blocks(format, catalog, err);
    if (code < 0)
        return code;
    struct wfs_layout *layout = layout_new(format, catalog);
    if (layout == NULL)
        return wfs_fail_memory(err);
    code = format->functions->plan(catalog, layout, err);
    if (code < 0) {
        wfs_layout_free(layout);
        return code;
    }
    *out = layout;
    return 0;
}

void wfs_layout_free(struct wfs_layout *layout)
{
    if (layout == NULL)
        return;
    source_free(layout->made);
    arena_done(&layout->arena);
    free(layout->segments);
    free(layout);
}

uint64_t wfs_layout_n_bytes(const struct wfs_layout *layout)
{
    return layout->n_bytes;
}

/* Of all files that something is taken from, each once. */
static uint64_t n_source_bytes(const struct wfs_layout *layout, const struct source **sources)
{
    size_t n_sources = 0;
    for (size_t i = 0; i < layout->n_segments; i++) {
        const struct wfs_tensor *tensor = layout->segments[i].tensor;
        const struct source *source = tensor == NULL ? NULL : tensor->stored.source;
        if (source != NULL && (n_sources == 0 || sources[n_sources - 1] != source))
            sources[n_sources++] = source;
    }
    return source_sum(sources, n_sources);
}

bool wfs_layout_is_large(const struct wfs_layout *layout)
{
    enum { N_FREE = 1 << 20, N_TIMES = 16 };
    uint64_t n_taken = 0; /* headers are made of the catalog, which is in memory anyhow */
    for (size_t i = 0; i < layout->n_segments; i++)
        n_taken += layout->segments[i].tensor == NULL ? 0 : layout->segments[i].n_bytes;
    if (n_taken <= N_FREE)
        return false;
    autofree const struct source **sources = calloc(layout->n_segments + 1, sizeof(*sources));
    return sources == NULL || n_taken / N_TIMES > n_source_bytes(layout, sources);
}

static int add_segment(struct wfs_layout *layout, struct layout_segment segment)
{
    uint64_t end;
    if (!checked_add(segment.offset, segment.n_bytes, &end) || end > INT64_MAX)
        return -EFBIG;
    if (segment.n_bytes == 0)
        return 0;
    if (array_reserve(&layout->segments, sizeof(*layout->segments), layout->n_segments, 1,
                      &layout->n_room) < 0)
        return -ENOMEM;
    layout->segments[layout->n_segments++] = segment;
    layout->n_bytes = end;
    return 0;
}

int layout_add_bytes(struct wfs_layout *layout, uint64_t offset, const void *bytes,
                     uint64_t n_bytes)
{
    return add_segment(
        layout, (struct layout_segment){.offset = offset, .n_bytes = n_bytes, .bytes = bytes});
}

int layout_add_tensor(struct wfs_layout *layout, uint64_t offset, const struct wfs_tensor *tensor)
{
    return add_segment(layout, (struct layout_segment){
                                   .offset = offset, .n_bytes = tensor->n_bytes, .tensor = tensor});
}

int layout_add_crc(struct wfs_layout *layout, uint64_t offset, const void *bytes, uint64_t n_bytes,
                   struct layout_crc *crc, uint32_t crc_offset)
{
    return add_segment(layout, (struct layout_segment){.offset = offset,
                                                       .n_bytes = n_bytes,
                                                       .bytes = bytes,
                                                       .crc = crc,
                                                       .crc_offset = crc_offset});
}

/* Parts of a tensor whose CRCs are computed at once. */
struct crc_round {
    const struct wfs_io *io;
    const struct wfs_tensor *tensor;
    uint64_t offset;
    size_t n_part;
    uint32_t sums[N_CRC_PARTS];
    ssize_t n_bytes[N_CRC_PARTS]; /* or a negative errno */
};

static void sum_part(void *ctx, size_t i, void *part)
{
    struct crc_round *round = ctx;
    const ssize_t n = wfs_tensor_read_for(round->io, round->tensor,
                                          round->offset + i * round->n_part, part, round->n_part);
    round->sums[i] = n <= 0 ? 0 : (uint32_t)crc32_z(0, part, (size_t)n);
    round->n_bytes[i] = n == 0 ? -EIO : n;
}

/* Computes the CRC where it is not known yet. -EIO as wfs_tensor_read, -ENOMEM. */
static int layout_crc_get(const struct wfs_io *io, struct layout_crc *crc, uint32_t *ret)
{
    const uint64_t known = atomic_load_explicit(&crc->known, memory_order_relaxed);
    *ret = (uint32_t)known;
    if (known != 0)
        return 0;
    cleanup(wfs_rooms_done) struct wfs_rooms rooms = {0};
    struct crc_round round = {
        .io = io, .tensor = crc->tensor, .n_part = wfs_tensor_piece_bytes(crc->tensor)};
    while (round.offset < crc->tensor->n_bytes) {
        const uint64_t n_left = (crc->tensor->n_bytes - round.offset - 1) / round.n_part + 1;
        const size_t n = n_left < N_CRC_PARTS ? (size_t)n_left : N_CRC_PARTS;
        if (wfs_rooms_share(&rooms, io, n, round.n_part, sum_part, &round) < 0)
            return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
            if (round.n_bytes[i] < 0)
                return (int)round.n_bytes[i];
            *ret = (uint32_t)crc32_combine(*ret, round.sums[i], round.n_bytes[i]);
            round.offset += (uint64_t)round.n_bytes[i];
        }
    }
    atomic_store_explicit(&crc->known, (UINT64_C(1) << 32) + *ret, memory_order_relaxed);
    return 0;
}

/* The first segment that ends behind offset; n_segments when there is none. */
static size_t find_segment(const struct wfs_layout *layout, uint64_t offset)
{
    size_t low = 0, high = layout->n_segments;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct layout_segment *segment = &layout->segments[middle];
        if (segment->offset + segment->n_bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct layout_segment *layout_segment_at(const struct wfs_layout *layout, uint64_t offset)
{
    const size_t i = find_segment(layout, offset);
    return i == layout->n_segments ? NULL : &layout->segments[i];
}

/* Fills at most n_bytes of buf from the segment, offset bytes into it. */
static ssize_t read_segment(const struct wfs_io *io, const struct wfs_layout *layout,
                            const struct layout_segment *segment, uint64_t offset, void *buf,
                            size_t n_bytes)
{
    if (segment->tensor != NULL)
        return wfs_tensor_read_for(io, segment->tensor, offset, buf, n_bytes);
    const uint64_t n_left = segment->n_bytes - offset;
    const size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
    if (segment->bytes == NULL) {
        const int code = layout->make(layout, offset, buf, n);
        return code < 0 ? code : (ssize_t)n;
    }
    memcpy(buf, (const char *)segment->bytes + offset, n);
    if (segment->crc == NULL || segment->crc_offset >= offset + n ||
        segment->crc_offset + sizeof(uint32_t) <= offset)
        return (ssize_t)n;
    uint32_t crc = 0;
    const int code = layout_crc_get(io, segment->crc, &crc);
    if (code < 0)
        return code;
    for (size_t i = 0; i < sizeof(crc); i++) {
        const uint64_t at = segment->crc_offset + i;
        if (at >= offset && at < offset + n)
            ((uint8_t *)buf)[at - offset] = (uint8_t)(crc >> 8 * i);
    }
    return (ssize_t)n;
}

ssize_t wfs_layout_read(const struct wfs_io *io, const struct wfs_layout *layout, uint64_t offset,
                        void *buf, size_t n_bytes)
{
    if (offset >= layout->n_bytes)
        return 0;
    if (n_bytes > layout->n_bytes - offset)
        n_bytes = (size_t)(layout->n_bytes - offset);
    n_bytes = n_bytes < SSIZE_MAX ? n_bytes : SSIZE_MAX;
    size_t n_done = 0;
    for (size_t i = find_segment(layout, offset); n_done < n_bytes; i++) {
        const struct layout_segment *segment = &layout->segments[i];
        const uint64_t at = offset + n_done;
        if (segment->offset > at) {
            const uint64_t n_gap = segment->offset - at;
            const size_t n = n_gap < n_bytes - n_done ? (size_t)n_gap : n_bytes - n_done;
            memset((char *)buf + n_done, 0, n);
            n_done += n;
        }
        if (n_done == n_bytes)
            break;
        const ssize_t n = read_segment(io, layout, segment, offset + n_done - segment->offset,
                                       (char *)buf + n_done, n_bytes - n_done);
        if (n < 0)
            return n;
        n_done += (size_t)n;
    }
    return (ssize_t)n_done;
}

static int check_key(const struct wfs_format *format, const struct wfs_tensor *tensor,
                     struct wfs_error *err)
{
    const size_t n_key = strlen(tensor->key);
    if (format->reserved_key != NULL && strcmp(tensor->key, format->reserved_key) == 0)
        return wfs_fail(err, EINVAL, "a tensor cannot have the key '%s', which %s reserves",
                        wfs_quote(tensor->key).text, format->title);
    if (format->needs_utf8 && utf8_valid(tensor->key, n_key) != n_key)
        return wfs_fail(err, EINVAL, "the key '%s' is not valid UTF-8, which %s requires",
                        wfs_quote(tensor->key).text, format->title);
    return 0;
}

static int fail_dtype(const struct wfs_format *format, const struct wfs_tensor *tensor,
                      struct wfs_error *err)
{
    const char *stored = wfs_tensor_attr(tensor, "dtype");
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    const bool can_be_cast = cast_is_possible(dtype, WFS_F32) || dtype_is_packed(dtype);
    if (dtype != WFS_OPAQUE)
        return wfs_fail(err, EOPNOTSUPP,
                        "tensor '%s': %s has no dtype %s: %sexclude=REGEX leaves it out",
                        wfs_quote(tensor->key).text, format->title, wfs_dtype_name(dtype),
                        can_be_cast ? "cast=REGEX:DTYPE converts it, " : "");
    return wfs_fail(err, EOPNOTSUPP, "tensor '%s': %s cannot store its unknown dtype%s%s%s",
                    wfs_quote(tensor->key).text, format->title, stored != NULL ? " '" : "",
                    stored != NULL ? wfs_quote(stored).text : "", stored != NULL ? "'" : "");
}

static int check_size(const struct wfs_tensor *tensor, struct wfs_error *err)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    uint64_t n_bytes;
    if (wfs_shape_bytes(&tensor->shape, dtype, &n_bytes) < 0 || n_bytes > INT64_MAX)
        return wfs_fail(err, EINVAL,
                        "tensor '%s': its shape does not fill whole bytes of %s below 2^63",
                        wfs_quote(tensor->key).text, wfs_dtype_name(dtype));
    if (n_bytes != tensor->n_bytes)
        return wfs_fail(err, EINVAL, "tensor '%s': dtype and shape take %s, it has %" PRIu64,
                        wfs_quote(tensor->key).text, wfs_count(n_bytes, "byte").text,
                        tensor->n_bytes);
    return 0;
}

int storable_check_tensor(const struct wfs_format *format, const struct wfs_tensor *tensor,
                          struct wfs_error *err)
{
    const struct format_functions *functions = format->functions;
    int code = check_key(format, tensor, err);
    if (code == 0 && !functions->stores(tensor))
        code = fail_dtype(format, tensor, err);
    if (code == 0 && tensor->dtype != WFS_OPAQUE)
        code = check_size(tensor, err);
    if (code == 0 && functions->check != NULL)
        code = functions->check(tensor, err);
    return code;
}

int storable_param_id(const struct wfs_tensor *tensor, uint64_t *ret, struct wfs_error *err)
{
    const char *text = wfs_tensor_attr(tensor, "param_id");
    if (text == NULL || digits_parse(text, strlen(text), ret))
        return text != NULL;
    return wfs_fail(err, EINVAL,
                    "tensor '%s': its param_id '%s' is not an integer from 0 to 2^64-1",
                    wfs_quote(tensor->key).text, wfs_quote(text).text);
}

int storable_check_metadata(const struct wfs_catalog *catalog, struct wfs_error *err)
{
    for (const struct wfs_text *text = catalog->meta.first; text != NULL; text = text->next) {
        const size_t n_name = strlen(text->name);
        if (utf8_valid(text->name, n_name) != n_name ||
            utf8_valid(text->value, text->n_bytes) != text->n_bytes)
            return wfs_fail(err, EINVAL, "the metadata '%s' is not valid UTF-8",
                            wfs_quote(text->name).text);
    }
    return 0;
}
