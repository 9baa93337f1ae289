/* SPDX-License-Identifier: MIT */
/*
 * A range of elements is decoded block by block; those at its ends go through a small buffer.
 */
#include "tensor/blocks.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/source.h"

enum { N_RAW = 65536 }; /* bytes of blocks at a time */

/* Decodes n blocks from number first on. raw has N_RAW bytes. */
static int decode(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t first,
                  size_t n, float *out, uint8_t *raw)
{
    const struct wfs_block block = wfs_dtype_block((enum wfs_dtype)tensor->dtype);
    while (n > 0) {
        const size_t n_now = n < N_RAW / block.n_bytes ? n : N_RAW / block.n_bytes;
        const size_t n_bytes = n_now * block.n_bytes;
        const ssize_t n_read = wfs_tensor_read_for(io, tensor, first * block.n_bytes, raw, n_bytes);
        if (n_read < 0 || (size_t)n_read < n_bytes)
            return n_read < 0 ? (int)n_read : -EIO;
        blocks_decode((enum wfs_dtype)tensor->dtype, raw, n_now, out);
        first += n_now;
        n -= n_now;
        out += n_now * block.n_elems;
    }
    return 0;
}

static int read_elements(const struct source *source, const struct wfs_io *io, uint64_t offset,
                         void *buf, size_t n_bytes)
{
    const struct wfs_tensor *tensor = source->ctx;
    const size_t n_block = wfs_dtype_block((enum wfs_dtype)tensor->dtype).n_elems * sizeof(float);
    autofree uint8_t *raw = malloc(N_RAW);
    float one[256];
    char *to = buf;
    if (raw == NULL)
        return -ENOMEM;
    while (n_bytes > 0) {
        const size_t skip = (size_t)(offset % n_block);
        const bool is_whole =
            skip == 0 && n_bytes >= n_block && (uintptr_t)to % _Alignof(float) == 0;
        const size_t n_blocks = is_whole ? n_bytes / n_block : 1;
        const int code = decode(io, tensor, offset / n_block, n_blocks,
                                is_whole ? (float *)(void *)to : one, raw);
        if (code < 0)
            return code;
        size_t n = n_blocks * n_block;
        if (!is_whole) {
            n = n_block - skip < n_bytes ? n_block - skip : n_bytes;
            memcpy(to, (const char *)one + skip, n);
        }
        offset += n;
        to += n;
        n_bytes -= n;
    }
    return 0;
}

static int check_blocks(const struct source *source, uint64_t offset)
{
    return wfs_tensor_check_source(source->ctx);
}

static const char *trouble_of_blocks(const struct source *source, uint64_t offset)
{
    return wfs_tensor_trouble(source->ctx);
}

static const struct source_kind kind = {
    .read = read_elements, .done = free, .check = check_blocks, .trouble = trouble_of_blocks};

int blocks_source_new(const struct wfs_tensor *tensor, struct source **out)
{
    const struct source *from = tensor->stored.source;
    struct wfs_tensor *copy = malloc(sizeof(*copy));
    uint64_t n_bytes = 0;
    if (copy == NULL)
        return -ENOMEM;
    *copy = *tensor;
    (void)wfs_shape_bytes(&tensor->shape, WFS_F32, &n_bytes);
    if (source_new(&kind, from == NULL ? "" : from->path, copy, n_bytes, out) < 0)
        return -ENOMEM;
    if (from != NULL)
        (*out)->origin = source_file(from);
    return 0;
}

bool blocks_are_known(const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    return wfs_dtype_has_blocks((enum wfs_dtype)tensor->dtype) && tensor->dtype == stored->dtype &&
           !stored->is_big_endian;
}

int wfs_numbers_init(struct wfs_numbers *numbers, const struct wfs_tensor *tensor)
{
    *numbers = (struct wfs_numbers){.tensor = tensor};
    if (!wfs_dtype_has_blocks((enum wfs_dtype)tensor->dtype))
        return 0;
    if (!blocks_are_known(tensor))
        return -EOPNOTSUPP;
    numbers->decoded = *tensor;
    const int code = blocks_source_new(tensor, &numbers->source);
    if (code < 0)
        return code;
    if (blocks_show(&numbers->decoded, numbers->source) < 0)
        return -EOPNOTSUPP;
    numbers->tensor = &numbers->decoded;
    return 0;
}

void wfs_numbers_done(struct wfs_numbers *numbers)
{
    source_free(numbers->source);
    numbers->source = NULL;
}

int blocks_show(struct wfs_tensor *tensor, struct source *source)
{
    tensor->dtype = WFS_F32;
    tensor->stored = (struct wfs_stored){.source = source, .dtype = WFS_F32};
    return wfs_shape_bytes(&tensor->shape, WFS_F32, &tensor->n_bytes);
}
