/* SPDX-License-Identifier: MIT */
/*
 * The place of the data in a Burnpack.
 */
#ifndef WFS_BURNPACK_EXTENT_H
#define WFS_BURNPACK_EXTENT_H

#include "format/burnpack/burnpack_load.h"

/* Sorts the tensors by place, finds the start of the data and compares them with the file. */
int burnpack_extent_check(struct burnpack_load *load);

/* Returns whether a Burn that wrote the packed layout says so in the metadata. */
bool burnpack_extent_is_old(const struct wfs_text *meta);

#endif
