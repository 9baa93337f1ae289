/* SPDX-License-Identifier: MIT */
/*
 * The words of a row (of two rows, where codes run along columns) are read for the columns that are
 * asked for; the rows of a result are done one after the other.
 */
#include "compute/compute.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tensor/tensor.h"

enum { MOST_CODES = 1 << 20 }; /* in one row at a time */

/* Reads n words of a row, from number `first` on; 0 for those behind the last row. */
static int read_words(const struct wfs_io *io, const struct packed *p, uint64_t row, uint64_t first,
                      size_t n, uint32_t *to)
{
    const uint64_t n_words = tensor_dim(&p->tensor, 1);
    if (row >= tensor_dim(&p->tensor, 0)) {
        memset(to, 0, n * sizeof(*to));
        return 0;
    }
    const ssize_t n_read =
        wfs_tensor_read_for(io, &p->tensor, (row * n_words + first) * 4, to, n * 4);
    if (n_read < 0)
        return (int)n_read;
    for (size_t i = 0; i < n; i++)
        to[i] = load_le32(&to[i]);
    return (size_t)n_read == n * 4 ? 0 : -EIO;
}

static uint8_t code_of(const struct packed *p, uint32_t low, uint32_t high, unsigned n_shift)
{
    const uint64_t both = (uint64_t)high << 32 | low;
    return (uint8_t)(both >> n_shift & ((1u << p->n_bits) - 1));
}

/* Codes along the row. One more word is read where a code may cross into it. */
static int read_along_row(const struct wfs_io *io, const struct packed *p, uint64_t row,
                          uint64_t col, size_t n, uint8_t *to)
{
    const uint64_t n_words = tensor_dim(&p->tensor, 1), first = col * p->n_bits / 32;
    const uint64_t last = (((uint64_t)col + n) * p->n_bits + 31) / 32;
    autofree uint32_t *words = calloc((size_t)(last - first) + 1, sizeof(*words));
    if (words == NULL)
        return -ENOMEM;
    const uint64_t end = last < n_words ? last : n_words;
    const int code = read_words(io, p, row, first, (size_t)(end - first), words);
    for (size_t i = 0; i < n && code == 0; i++) {
        const uint64_t bit = (col + i) * p->n_bits;
        to[i] = code_of(p, words[bit / 32 - first], words[bit / 32 - first + 1], bit % 32);
    }
    return code;
}

static int read_along_column(const struct wfs_io *io, const struct packed *p, uint64_t row,
                             uint64_t col, size_t n, uint8_t *to)
{
    const uint64_t bit = row * p->n_bits;
    autofree uint32_t *words = calloc(2 * n + 1, sizeof(*words));
    if (words == NULL)
        return -ENOMEM;
    int code = read_words(io, p, bit / 32, col, n, words);
    if (code == 0 && bit % 32 + p->n_bits > 32)
        code = read_words(io, p, bit / 32 + 1, col, n, words + n);
    for (size_t i = 0; i < n && code == 0; i++)
        to[i] = code_of(p, words[i], words[n + i], bit % 32);
    return code;
}

static int read_awq(const struct wfs_io *io, const struct packed *p, uint64_t row, uint64_t col,
                    size_t n, uint8_t *to)
{
    static const unsigned char nibbles[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const uint64_t first = col / 8, last = (col + n + 7) / 8;
    autofree uint32_t *words = calloc((size_t)(last - first) + 1, sizeof(*words));
    if (words == NULL)
        return -ENOMEM;
    const int code = read_words(io, p, row, first, (size_t)(last - first), words);
    for (size_t i = 0; i < n && code == 0; i++)
        to[i] = words[(col + i) / 8 - first] >> (4 * nibbles[(col + i) % 8]) & 15;
    return code;
}

/* Two in a byte. */
static int read_halves(const struct wfs_io *io, const struct packed *p, uint64_t first, size_t n,
                       uint8_t *to)
{
    const uint64_t start = first / 2;
    const size_t n_bytes = (size_t)((first + n + 1) / 2 - start);
    autofree uint8_t *bytes = malloc(n_bytes + 1);
    if (bytes == NULL)
        return -ENOMEM;
    const ssize_t n_read = wfs_tensor_read_for(io, &p->tensor, start, bytes, n_bytes);
    if (n_read < 0 || (size_t)n_read < n_bytes)
        return n_read < 0 ? (int)n_read : -EIO;
    for (size_t i = 0; i < n; i++) {
        const bool is_second = (first + i) % 2 == 1;
        const uint8_t byte = bytes[(first + i) / 2 - start];
        to[i] = is_second == (p->packing == PACKING_LOW_FIRST) ? byte >> 4 : byte & 15;
    }
    return 0;
}

static int read_codes(const struct source *source, const struct wfs_io *io, uint64_t offset,
                      void *buf, size_t n_bytes)
{
    const struct packed *p = source->ctx;
    uint8_t *to = buf;
    int code = 0;
    if (p->packing == PACKING_LOW_FIRST || p->packing == PACKING_HIGH_FIRST)
        return read_halves(io, p, offset, n_bytes, to);
    while (n_bytes > 0 && code == 0) {
        const uint64_t row = offset / p->n_cols, col = offset % p->n_cols, n_left = p->n_cols - col;
        size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
        n = n < MOST_CODES ? n : MOST_CODES;
        code = p->packing == PACKING_ROWS      ? read_along_row(io, p, row, col, n, to)
               : p->packing == PACKING_COLUMNS ? read_along_column(io, p, row, col, n, to)
                                               : read_awq(io, p, row, col, n, to);
        offset += n;
        to += n;
        n_bytes -= n;
    }
    return code;
}

static int check_codes(const struct source *source, uint64_t offset)
{
    return wfs_tensor_check_source(&((const struct packed *)source->ctx)->tensor);
}

static const char *trouble_of_codes(const struct source *source, uint64_t offset)
{
    return wfs_tensor_trouble(&((const struct packed *)source->ctx)->tensor);
}

/* Returns whether the tensor has all the codes. */
static bool has_all(const struct packed *p, uint64_t n_codes)
{
    const uint64_t n_rows = tensor_dim(&p->tensor, 0), n_words = tensor_dim(&p->tensor, 1);
    uint64_t n_bits;
    switch (p->packing) {
    case PACKING_ROWS:
        return checked_mul(p->n_cols, p->n_bits, &n_bits) && p->n_rows <= n_rows &&
               (n_bits + 31) / 32 <= n_words;
    case PACKING_COLUMNS:
        return checked_mul(p->n_rows, p->n_bits, &n_bits) && p->n_cols <= n_words &&
               (n_bits + 31) / 32 <= n_rows;
    case PACKING_AWQ:
        return p->n_rows <= n_rows && (p->n_cols + 7) / 8 <= n_words;
    default:
        return (n_codes + 1) / 2 <= p->tensor.n_bytes;
    }
}

int unpack_new(const struct packed *packed, struct source **out)
{
    static const struct source_kind kind = {
        .read = read_codes, .done = free, .check = check_codes, .trouble = trouble_of_codes};
    uint64_t n_codes;
    if (!checked_mul(packed->n_rows, packed->n_cols, &n_codes) || n_codes > UINT64_MAX / 32 ||
        !has_all(packed, n_codes))
        return -EINVAL;
    struct packed *copy = malloc(sizeof(*copy));
    if (copy == NULL)
        return -ENOMEM;
    *copy = *packed;
    const struct source *from = packed->tensor.stored.source;
    if (source_new(&kind, from->path, copy, n_codes, out) < 0)
        return -ENOMEM;
    (*out)->origin = from->origin != NULL ? from->origin : from;
    return 0;
}
