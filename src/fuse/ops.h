/* SPDX-License-Identifier: MIT */
/*
 * The table of callbacks of a mount, and the features requested from the kernel.
 */
#ifndef WFS_OPS_H
#define WFS_OPS_H

#define FUSE_USE_VERSION 314

#include <fuse_lowlevel.h>
#include <stdbool.h>

/* Returns the callbacks of a mount; is_writable: one that can be changed. */
struct fuse_lowlevel_ops ops_table(bool is_writable);

#endif
