/* SPDX-License-Identifier: MIT */
/*
 * The first change of a tensor file: what is shown is copied to the staging directory, where all
 * later changes go.
 */
#ifndef WFS_TREE_STAGING_H
#define WFS_TREE_STAGING_H

#include "tree/node/node.h"

/* Copies the first n_keep bytes of what the file shows into a new staged one and makes that its
 * content. The node is as it was when this fails. -EFBIG: the tensor shows much more than its file
 * has. */
int staging_begin(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep);

#endif
