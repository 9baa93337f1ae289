/* SPDX-License-Identifier: MIT */
/*
 * Makes directories and files of a catalog.
 */
#ifndef WFS_TREE_BUILD_H
#define WFS_TREE_BUILD_H

#include "tree/node/node.h"

/* Fills a tree that has nothing but its root. */
int build_tree(struct wfs_tree *tree, struct wfs_error *err);

#endif
