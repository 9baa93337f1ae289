/* SPDX-License-Identifier: MIT */
/*
 * One pass over the elements as numbers.
 */
#include <weightfs/cleanup.h>
#include <weightfs/tensor.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* A multiple of 3 bytes, so that 6-bit elements end on a whole one. */
enum { N_PIECE = 3 << 16 };

static void count(struct wfs_stats *stats, double *squares, const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double x = values[i];
        stats->n_elems++;
        if (isnan(x)) {
            stats->n_nan++;
        } else if (isinf(x)) {
            x > 0 ? stats->n_positive_inf++ : stats->n_negative_inf++;
        } else {
            /* Welford: stable where sums of squares cancel. */
            stats->n_finite++;
            const double delta = x - stats->mean;
            stats->mean += delta / (double)stats->n_finite;
            *squares += delta * (x - stats->mean);
            stats->n_zero += x == 0;
            stats->min = stats->n_finite == 1 || x < stats->min ? x : stats->min;
            stats->max = stats->n_finite == 1 || x > stats->max ? x : stats->max;
        }
    }
}

int wfs_tensor_stats(const struct wfs_tensor *tensor, struct wfs_stats *ret)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    const unsigned n_bits = wfs_dtype_bits(dtype);
    const enum wfs_kind kind = wfs_dtype_kind(dtype);
    if (kind == WFS_KIND_COMPLEX || kind == WFS_KIND_BITS)
        return -EOPNOTSUPP;
    autofree char *piece = malloc(N_PIECE);
    autofree double *values = malloc(N_PIECE * 8 / n_bits * sizeof(double));
    if (piece == NULL || values == NULL)
        return -ENOMEM;
    struct wfs_stats stats = {0};
    double squares = 0;
    for (uint64_t offset = 0; offset < tensor->n_bytes;) {
        const ssize_t n = wfs_tensor_read(tensor, offset, piece, N_PIECE);
        if (n < 0)
            return (int)n;
        const size_t n_elems = (size_t)n * 8 / n_bits;
        const int code = wfs_dtype_decode(dtype, piece, n_elems, values);
        if (code < 0)
            return code;
        count(&stats, &squares, values, n_elems);
        offset += (uint64_t)n;
    }
    stats.std = stats.n_finite == 0 ? 0 : sqrt(squares / (double)stats.n_finite);
    *ret = stats;
    return 0;
}
