/* SPDX-License-Identifier: MIT */
/*
 * The layout of a new Burnpack.
 */
#ifndef WFS_BURNPACK_LAYOUT_H
#define WFS_BURNPACK_LAYOUT_H

#include "format/core/layout.h"

/* Returns whether the format has the dtype of the tensor, or it is quantized. */
bool burnpack_layout_stores(const struct wfs_tensor *tensor);

/* Checks a quantization scheme, the size that Burn reads, and a parameter id. -EINVAL, -E2BIG. */
int burnpack_layout_check(const struct wfs_tensor *tensor, struct wfs_error *err);

/* Lays a catalog out as the newest Burn does. */
int burnpack_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                         struct wfs_error *err);

#endif
