/* SPDX-License-Identifier: MIT */
/*
 * The control directory: its texts, made when somebody looks at them and kept until the tree
 * changes.
 */
#ifndef WFS_TREE_CONTROL_H
#define WFS_TREE_CONTROL_H

#include "tree/node/node.h"

/* Makes the directory and its files. -ENOMEM. */
int control_new(struct wfs_tree *tree);
void control_done(struct wfs_tree *tree);

/* The length of the text as it is now; a text that is out of date is made anew. */
int control_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node,
                    uint64_t *ret_n_bytes);

/* When the text of a fixed file was made. */
struct timespec control_mtime(const struct wfs_tree *tree, const struct wfs_node *node);

/* Reads of the text that was made last. */
ssize_t control_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                     void *buf, size_t n_bytes);

#endif
