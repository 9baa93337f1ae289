/* SPDX-License-Identifier: MIT */
/*
 * The content of a node, whatever it is: its size, and how it becomes a staged file.
 */
#ifndef WFS_TREE_CONTENT_H
#define WFS_TREE_CONTENT_H

#include "tree/node/edit.h"

/* Returns the size that stat shows. */
uint64_t content_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node);

/*
 * Gives the node a staged file that begins with the first n_keep bytes of what is shown. The node
 * is as it was when this fails.
 */
int content_stage(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep);

#endif
