/* SPDX-License-Identifier: MIT */
/*
 * The listing of a graph: its tensors and values, each with a dotted name.
 */
#ifndef WFS_TORCH_LISTING_H
#define WFS_TORCH_LISTING_H

#include "format/pytorch/object/torch.h"

/* Adds all tensors and values at or below root to the catalog, with a prefix for their names (may
 * be empty). -E2BIG, -EOPNOTSUPP, -EIO, -ENOMEM. */
int torch_listing_add(struct torch *torch, uint32_t root, const char *prefix);

#endif
