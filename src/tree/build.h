/* SPDX-License-Identifier: MIT */
/*
 * From the catalog to directories and files.
 */
#ifndef WFS_TREE_BUILD_H
#define WFS_TREE_BUILD_H

#include "tree/node/node.h"

/* Fills a tree that has nothing but its root. */
int build_tree(struct wfs_tree *tree, struct wfs_error *err);

#endif
