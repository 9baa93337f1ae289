/* SPDX-License-Identifier: MIT */
/*
 * The content of a node, whatever it is: its size.
 */
#ifndef WFS_TREE_CONTENT_H
#define WFS_TREE_CONTENT_H

#include "tree/node/edit.h"

/* Returns the size that stat shows. */
uint64_t content_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node);

#endif
