/* SPDX-License-Identifier: MIT */
/*
 * One pass over the elements of a tensor: as numbers for its statistics, as bytes for its digest.
 */
#include <weightfs/cleanup.h>
#include <weightfs/workload.h>
#include <weightfs/tensor.h>
#include "base/hash.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A multiple of 3 bytes, so that 6-bit elements end on a whole one. */
enum { N_PIECE = 3 << 16 };

struct sums {
    struct wfs_stats stats;
    double squares;
};

static void count(struct sums *sums, double x, uint64_t n_times)
{
    struct wfs_stats *stats = &sums->stats;
    stats->n_elems += n_times;
    if (isnan(x)) {
        stats->n_nan += n_times;
    } else if (isinf(x)) {
        *(x > 0 ? &stats->n_positive_inf : &stats->n_negative_inf) += n_times;
    } else if (n_times > 0) {
        /* Welford: stable where sums of squares cancel. */
        const bool is_first = stats->n_finite == 0;
        stats->n_finite += n_times;
        const double delta = x - stats->mean, weight = (double)n_times;
        stats->mean += delta * weight / (double)stats->n_finite;
        sums->squares += delta * (x - stats->mean) * weight;
        stats->n_zero += x == 0 ? n_times : 0;
        stats->min = is_first || x < stats->min ? x : stats->min;
        stats->max = is_first || x > stats->max ? x : stats->max;
    }
}

static int count_all(const struct wfs_io *io, struct sums *sums,
                     const struct wfs_distinct *distinct)
{
    const struct wfs_tensor *tensor = &distinct->tensor;
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    const unsigned n_bits = wfs_dtype_bits(dtype);
    autofree char *piece = malloc(N_PIECE);
    autofree double *values = malloc(N_PIECE * 8 / n_bits * sizeof(double));
    if (piece == NULL || values == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0, index = 0; offset < tensor->n_bytes;) {
        const ssize_t n = wfs_tensor_read_for(io, tensor, offset, piece, N_PIECE);
        if (n < 0)
            return (int)n;
        const size_t n_elems = (size_t)n * 8 / n_bits;
        const int code = wfs_dtype_decode(dtype, piece, n_elems, values);
        if (code < 0)
            return code;
        for (size_t i = 0; i < n_elems; i++)
            count(sums, values[i], wfs_distinct_times(distinct, index + i));
        offset += (uint64_t)n;
        index += n_elems;
    }
    return 0;
}

int wfs_tensor_stats(const struct wfs_io *io, const struct wfs_tensor *tensor,
                     struct wfs_stats *ret)
{
    cleanup(wfs_numbers_done) struct wfs_numbers numbers = {0};
    int code = wfs_numbers_init(&numbers, tensor);
    const enum wfs_kind kind = wfs_dtype_kind((enum wfs_dtype)numbers.tensor->dtype);
    if (code < 0 || kind == WFS_KIND_COMPLEX || kind == WFS_KIND_BITS)
        return code < 0 ? code : -EOPNOTSUPP;
    struct sums sums = {0};
    cleanup(wfs_distinct_done) struct wfs_distinct distinct;
    code = wfs_distinct_init(io, &distinct, numbers.tensor, NULL);
    if (code == 0)
        code = count_all(io, &sums, &distinct);
    if (code < 0)
        return code;
    struct wfs_stats *stats = &sums.stats;
    stats->std = stats->n_finite == 0 ? 0 : sqrt(sums.squares / (double)stats->n_finite);
    *ret = *stats;
    return 0;
}

/* ---- NaN and infinities of complex elements ---- */

static void count_complex(struct wfs_odd *odd, const double parts[2], uint64_t n_times)
{
    const bool is_nan = isnan(parts[0]) || isnan(parts[1]);
    odd->n_elems += n_times;
    odd->n_nan += is_nan ? n_times : 0;
    odd->n_inf += !is_nan && (isinf(parts[0]) || isinf(parts[1])) ? n_times : 0;
}

static int count_all_complex(struct wfs_odd *odd, const struct wfs_distinct *distinct)
{
    const struct wfs_tensor *tensor = &distinct->tensor;
    const enum wfs_dtype part = wfs_dtype_part((enum wfs_dtype)tensor->dtype);
    const size_t n_part = wfs_dtype_bits(part) / 8;
    autofree char *piece = malloc(N_PIECE);
    autofree double *parts = malloc(N_PIECE / n_part * sizeof(double));
    if (piece == NULL || parts == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0, index = 0; offset < tensor->n_bytes;) {
        const ssize_t n = wfs_tensor_read(tensor, offset, piece, N_PIECE);
        if (n < 0)
            return (int)n;
        const size_t n_elems = (size_t)n / (2 * n_part);
        wfs_dtype_decode(part, piece, 2 * n_elems, parts);
        for (size_t i = 0; i < n_elems; i++)
            count_complex(odd, parts + 2 * i, wfs_distinct_times(distinct, index + i));
        offset += (uint64_t)n;
        index += n_elems;
    }
    return 0;
}

int wfs_tensor_count_odd(const struct wfs_tensor *tensor, struct wfs_odd *ret)
{
    if (wfs_dtype_kind((enum wfs_dtype)tensor->dtype) != WFS_KIND_COMPLEX)
        return -EOPNOTSUPP;
    *ret = (struct wfs_odd){0};
    cleanup(wfs_distinct_done) struct wfs_distinct distinct;
    const int code = wfs_distinct_init(NULL, &distinct, tensor, NULL);
    return code < 0 ? code : count_all_complex(ret, &distinct);
}

enum { N_HASHED = 1 << 20 };

static void cleanup_hasher(struct hasher **hasher)
{
    hasher_free(*hasher);
}

int wfs_tensor_digest_and(const struct wfs_io *io, const struct wfs_tensor *tensor, wfs_take take,
                          void *ctx, uint64_t *ret_digest)
{
    autofree char *piece = malloc(N_HASHED);
    cleanup(cleanup_hasher) struct hasher *hasher = hasher_new();
    if (piece == NULL || hasher == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0; offset < tensor->n_bytes;) {
        const ssize_t n = wfs_tensor_read_for(io, tensor, offset, piece, N_HASHED);
        if (n < 0)
            return (int)n;
        hasher_update(hasher, piece, (size_t)n);
        const int code = take == NULL ? 0 : take(ctx, piece, (size_t)n);
        if (code != 0)
            return code;
        offset += (uint64_t)n;
    }
    *ret_digest = hasher_digest(hasher);
    return 0;
}

int wfs_tensor_digest(const struct wfs_tensor *tensor, uint64_t *ret_digest)
{
    return wfs_tensor_digest_and(NULL, tensor, NULL, NULL, ret_digest);
}
