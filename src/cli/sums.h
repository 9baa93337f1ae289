/* SPDX-License-Identifier: MIT */
/*
 * SHA-256 and XXH3 of the elements of tensors, as they are shown: equal tensors have equal sums in
 * all formats. This room's only user of a library for SHA-256.
 */
#ifndef WFS_SUMS_H
#define WFS_SUMS_H

#include <weightfs/catalog.h>
#include <weightfs/workload.h>

#include "cli/progress.h"

enum { SUMS_N_SHA256 = 64, SUMS_N_XXH3 = 16 }; /* hexadecimal digits */

struct sums {
    char sha256[SUMS_N_SHA256 + 1];
    char xxh3[SUMS_N_XXH3 + 1];
};

/* Gets the sums of one tensor. Anything but 0 is the end. */
typedef int (*sums_visit)(void *ctx, const struct wfs_tensor *tensor, const struct sums *sums);

/*
 * Reads all tensors once, several at a time, those of a group of the workload once together, and
 * calls visit for each in the order of the catalog. Returns the first result that is not 0: of
 * visit, with *ret_failed NULL, or the negative errno of the tensor *ret_failed; -ENOMEM.
 */
int sums_make(const struct wfs_catalog *catalog, const struct wfs_workload *workload,
              struct progress *progress, sums_visit visit, void *ctx,
              const struct wfs_tensor **ret_failed);

#endif
