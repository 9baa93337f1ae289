/* SPDX-License-Identifier: MIT */
/*
 * Percentiles of the elements of a tensor: exact, in memory that does not depend on its size.
 */
#ifndef WFS_PERCENTILES_H
#define WFS_PERCENTILES_H

#include <weightfs/tensor.h>

enum { PERCENTILES_N = 7 };

/* Which: 1, 5, 25, 50, 75, 95, 99. */
extern const unsigned percentiles_ranks[PERCENTILES_N];

/* Returns how often percentiles_find reads the tensor. */
unsigned percentiles_n_passes(const struct wfs_tensor *tensor);

/*
 * Finds for each the smallest element that is not smaller than so many percent of the finite
 * elements, of which there are n_finite, at least 1. The tensor holds numbers. -EIO, -ENOMEM.
 */
int percentiles_find(const struct wfs_tensor *tensor, uint64_t n_finite, double ret[PERCENTILES_N]);

#endif
