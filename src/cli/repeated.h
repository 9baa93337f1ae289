/* SPDX-License-Identifier: MIT */
/*
 * Statistics of tensors that several keys have: read once, however many there are.
 */
#ifndef WFS_REPEATED_H
#define WFS_REPEATED_H

#include <weightfs/catalog.h>

struct repeated;

/* -ENOMEM. */
int repeated_new(const struct wfs_catalog *catalog, struct repeated **out);
void repeated_free(struct repeated *repeated);

/* Does what wfs_tensor_stats does, for a tensor of the catalog; of a complex one, only the numbers
 * of elements, NaN and infinities are counted. */
int repeated_stats(struct repeated *repeated, const struct wfs_tensor *tensor,
                   struct wfs_stats *ret);

#endif
