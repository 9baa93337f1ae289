/* SPDX-License-Identifier: MIT */
/*
 * Callbacks on content and attributes.
 */
#ifndef WFS_OPS_CONTENT_H
#define WFS_OPS_CONTENT_H

#include <stdbool.h>

struct fuse_lowlevel_ops;

/* Adds them to the table of a mount; is_writable: one that can be changed. */
void ops_content_add(struct fuse_lowlevel_ops *ops, bool is_writable);

#endif
