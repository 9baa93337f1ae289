/* SPDX-License-Identifier: MIT */
/*
 * The layout of a new safetensors file.
 */
#ifndef WFS_SAFETENSORS_LAYOUT_H
#define WFS_SAFETENSORS_LAYOUT_H

#include "format/core/layout.h"

/* Returns whether the format has the dtype of the tensor. */
bool safetensors_layout_stores(const struct wfs_tensor *tensor);

/* Lays a catalog out in the canonical form. */
int safetensors_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                            struct wfs_error *err);

#endif
