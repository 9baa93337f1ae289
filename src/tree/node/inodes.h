/* SPDX-License-Identifier: MIT */
/*
 * Inode numbers of what is in the catalog: the same at the next mount, and each only once.
 */
#ifndef WFS_TREE_INODES_H
#define WFS_TREE_INODES_H

#include "tree/node/node.h"

/* The number that the name in the directory gives. */
uint64_t inodes_of_name(const struct wfs_node *dir, const char *name);

/* Once all nodes are there: gives another number to each whose number an earlier one has. -ENOMEM.
 */
int inodes_settle(struct wfs_tree *tree);

#endif
