/* SPDX-License-Identifier: MIT */
/*
 * A loaded checkpoint without names that are not known to be harmless.
 */
#ifndef WFS_TORCH_PURGE_H
#define WFS_TORCH_PURGE_H

#include "format/core/format.h"

/*
 * For struct wfs_format: replaces every such name, and what a call of one makes, by None. Where
 * tensors are in what such a call makes, the output is made of the tensors alone.
 */
int torch_purge(struct wfs_catalog *catalog,
                int (*report)(void *ctx, const char *module, const char *name), void *ctx);

#endif
