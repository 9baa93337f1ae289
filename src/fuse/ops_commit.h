/* SPDX-License-Identifier: MIT */
/*
 * Callbacks that make edits durable or publish them.
 */
#ifndef WFS_OPS_COMMIT_H
#define WFS_OPS_COMMIT_H

#include <stdbool.h>

struct fuse_lowlevel_ops;

/* Adds them to the table of a mount; is_writable: one that can be changed. */
void ops_commit_add(struct fuse_lowlevel_ops *ops, bool is_writable);

#endif
