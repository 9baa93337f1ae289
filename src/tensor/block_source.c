/* SPDX-License-Identifier: MIT */
/*
 * A range is converted block by block; those at its ends go through a small buffer.
 */
#include "tensor/blocks.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/source.h"

enum { N_RAW = 65536, N_BLOCK_MAX = 1024 }; /* bytes that are read at a time, of a decoded block */

/* A tensor, and what its elements become: F32 of blocks, or blocks of F32. */
struct blocks {
    struct wfs_tensor from;
    enum wfs_dtype to;
    size_t n_in, n_out; /* bytes of a block on both sides */
};

/* Converts n blocks from number first on. raw has N_RAW bytes. */
static int convert(const struct wfs_io *io, const struct blocks *blocks, uint64_t first, size_t n,
                   char *out, void *raw)
{
    while (n > 0) {
        const size_t n_now = n < N_RAW / blocks->n_in ? n : N_RAW / blocks->n_in;
        const size_t n_bytes = n_now * blocks->n_in;
        const ssize_t n_read =
            wfs_tensor_read_for(io, &blocks->from, first * blocks->n_in, raw, n_bytes);
        if (n_read < 0 || (size_t)n_read < n_bytes)
            return n_read < 0 ? (int)n_read : -EIO;
        if (blocks->to == WFS_F32)
            blocks_decode((enum wfs_dtype)blocks->from.dtype, raw, n_now, (float *)(void *)out);
        else
            blocks_encode(blocks->to, raw, n_now, out);
        first += n_now;
        n -= n_now;
        out += n_now * blocks->n_out;
    }
    return 0;
}

static int read_blocks(const struct source *source, const struct wfs_io *io, uint64_t offset,
                       void *buf, size_t n_bytes)
{
    const struct blocks *blocks = source->ctx;
    const size_t n_block = blocks->n_out;
    autofree void *raw = malloc(N_RAW);
    _Alignas(float) char one[N_BLOCK_MAX];
    char *to = buf;
    if (raw == NULL)
        return -ENOMEM;
    while (n_bytes > 0) {
        const size_t skip = (size_t)(offset % n_block);
        const bool is_whole =
            skip == 0 && n_bytes >= n_block && (uintptr_t)to % _Alignof(float) == 0;
        const size_t n_blocks = is_whole ? n_bytes / n_block : 1;
        const int code = convert(io, blocks, offset / n_block, n_blocks, is_whole ? to : one, raw);
        if (code < 0)
            return code;
        size_t n = n_blocks * n_block;
        if (!is_whole) {
            n = n_block - skip < n_bytes ? n_block - skip : n_bytes;
            memcpy(to, one + skip, n);
        }
        offset += n;
        to += n;
        n_bytes -= n;
    }
    return 0;
}

static int check_blocks(const struct source *source, uint64_t offset)
{
    return wfs_tensor_check_source(&((const struct blocks *)source->ctx)->from);
}

static const char *trouble_of_blocks(const struct source *source, uint64_t offset)
{
    return wfs_tensor_trouble(&((const struct blocks *)source->ctx)->from);
}

/* block: of the type on either side that has blocks. */
static int make(const struct wfs_tensor *tensor, enum wfs_dtype to, struct wfs_block block,
                struct source **out)
{
    static const struct source_kind kind = {
        .read = read_blocks, .done = free, .check = check_blocks, .trouble = trouble_of_blocks};
    const struct source *from = tensor->stored.source;
    const size_t n_numbers = block.n_elems * sizeof(float);
    const bool is_decoded = to == WFS_F32;
    struct blocks *blocks = malloc(sizeof(*blocks));
    uint64_t n_bytes = 0;
    if (blocks == NULL)
        return -ENOMEM;
    *blocks = (struct blocks){.from = *tensor,
                              .to = to,
                              .n_in = is_decoded ? block.n_bytes : n_numbers,
                              .n_out = is_decoded ? n_numbers : block.n_bytes};
    (void)wfs_shape_bytes(&tensor->shape, to, &n_bytes);
    if (source_new(&kind, from == NULL ? "" : from->path, blocks, n_bytes, out) < 0)
        return -ENOMEM;
    if (from != NULL)
        (*out)->origin = source_file(from);
    return 0;
}

int blocks_source_new(const struct wfs_tensor *tensor, struct source **out)
{
    return make(tensor, WFS_F32, wfs_dtype_block((enum wfs_dtype)tensor->dtype), out);
}

int blocks_made_new(const struct wfs_tensor *tensor, enum wfs_dtype dtype, struct source **out)
{
    return make(tensor, dtype, wfs_dtype_block(dtype), out);
}

bool dtype_is_packed(enum wfs_dtype dtype)
{
    return wfs_dtype_has_blocks(dtype) ||
           (wfs_dtype_kind(dtype) == WFS_KIND_FLOAT && wfs_dtype_bits(dtype) < 8);
}

bool blocks_are_known(const struct wfs_tensor *tensor)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    const struct wfs_stored *stored = &tensor->stored;
    return dtype_is_packed(dtype) && tensor->dtype == stored->dtype &&
           !(wfs_dtype_has_blocks(dtype) && stored->is_big_endian);
}

int wfs_numbers_init(struct wfs_numbers *numbers, const struct wfs_tensor *tensor)
{
    *numbers = (struct wfs_numbers){.tensor = tensor};
    if (!dtype_is_packed((enum wfs_dtype)tensor->dtype))
        return 0;
    if (!blocks_are_known(tensor))
        return -EOPNOTSUPP;
    numbers->decoded = *tensor;
    const int code = blocks_source_new(tensor, &numbers->source);
    if (code < 0)
        return code;
    if (blocks_show(&numbers->decoded, WFS_F32, numbers->source) < 0)
        return -EOPNOTSUPP;
    numbers->tensor = &numbers->decoded;
    return 0;
}

void wfs_numbers_done(struct wfs_numbers *numbers)
{
    source_free(numbers->source);
    numbers->source = NULL;
}

int blocks_show(struct wfs_tensor *tensor, enum wfs_dtype dtype, struct source *source)
{
    tensor->dtype = (uint8_t)dtype;
    tensor->stored = (struct wfs_stored){.source = source, .dtype = (uint8_t)dtype};
    return wfs_shape_bytes(&tensor->shape, dtype, &tensor->n_bytes);
}
