/* SPDX-License-Identifier: MIT */
/*
 * Laying out a catalog as a record in MessagePack.
 */
#ifndef WFS_RECORD_LAYOUT_H
#define WFS_RECORD_LAYOUT_H

#include "format/core/format.h"
#include "format/core/layout.h"

/* The functions of struct format_functions. */
bool record_layout_stores(const struct wfs_tensor *tensor);
int record_layout_check(const struct wfs_tensor *tensor, struct wfs_error *err);
int record_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                       struct wfs_error *err);

#endif
