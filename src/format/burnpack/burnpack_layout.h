/* SPDX-License-Identifier: MIT */
/*
 * The layout of a new Burnpack.
 */
#ifndef WFS_BURNPACK_LAYOUT_H
#define WFS_BURNPACK_LAYOUT_H

#include "format/core/layout.h"

/* Lays a catalog out as the newest Burn does. */
int burnpack_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                         struct wfs_error *err);

#endif
