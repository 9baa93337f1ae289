/* SPDX-License-Identifier: MIT */
/*
 * Inode numbers of nodes that are in the catalog: unique, and the same at the next mount.
 */
#ifndef WFS_TREE_INODES_H
#define WFS_TREE_INODES_H

#include "tree/node/node.h"

/* Returns the number that the name in the directory gives. */
uint64_t inodes_of_name(const struct wfs_node *dir, const char *name);

/* Gives another number to each node whose number an earlier one has, once all nodes exist. -ENOMEM.
 */
int inodes_settle(struct wfs_tree *tree);

#endif
