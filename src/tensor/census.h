/* SPDX-License-Identifier: MIT */
/*
 * The loops of statistics, which become vector code: classes of elements by their bits, and sums in
 * an order that does not depend on the processor.
 */
#ifndef WFS_CENSUS_H
#define WFS_CENSUS_H

#include <weightfs/workload.h>

/*
 * Sums of numbers. Those of a tensor are made from blocks of CENSUS_BLOCK elements: number i of the
 * finite ones of a block is added to sum i % CENSUS_LANES, and neighbouring sums are added in
 * pairs. Blocks are joined in pairs, the pairs in pairs, and so on (docs/semantics.md).
 */
enum { CENSUS_BLOCK = 2048, CENSUS_LANES = 32 };

struct census {
    struct wfs_stats stats; /* without std */
    double squares;         /* sum of the squared distances from the mean */
};

/* Counts the numbers, at most a block of them; reorders them. */
void census_block(double *numbers, size_t n, struct census *ret);

/* Adds what was counted in the elements behind those of `to`. */
void census_join(struct census *to, const struct census *from);

/* Adds the NaN and infinities among elements of a float of whole bytes; other dtypes have none. */
void census_odd(enum wfs_dtype dtype, const void *elems, size_t n, uint64_t *n_nan,
                uint64_t *n_inf);

/* Finds the bin of each number, as wfs_bins_add does; n_bins for those that are not finite. */
void census_bins(const struct wfs_stats *stats, const double *numbers, size_t n, size_t n_bins,
                 int32_t *bins);

#endif
