/* SPDX-License-Identifier: MIT */
/*
 * The checkpoint that torch.save would write of a catalog.
 */
#ifndef WFS_TORCH_CHECKPOINT_H
#define WFS_TORCH_CHECKPOINT_H

#include "format/core/layout.h"

/* For struct wfs_format. */
int torch_checkpoint_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                          struct wfs_error *err);

/* The same with another name for the folder that all records are in. */
int torch_checkpoint_plan_in(const char *folder, const struct wfs_catalog *catalog,
                             struct wfs_layout *layout, struct wfs_error *err);

#endif
