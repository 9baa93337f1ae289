/* SPDX-License-Identifier: MIT */
/*
 * Callbacks on names and directories.
 */
#ifndef WFS_OPS_NAMES_H
#define WFS_OPS_NAMES_H

#include <stdbool.h>

struct fuse_lowlevel_ops;

/* Adds them to the table of a mount; is_writable: one that can be changed. */
void ops_names_add(struct fuse_lowlevel_ops *ops, bool is_writable);

#endif
