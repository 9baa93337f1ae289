/* SPDX-License-Identifier: MIT */
/*
 * The control directory. Its texts are generated when they are opened and kept until the tree
 * changes.
 *
 * The room src/tree/control knows the texts that the tree generates: tensors.csv, metadata.json,
 * status.json, and those that the caller brings. It leaves reading and writing of files to the
 * tree.
 */
#ifndef WFS_TREE_CONTROL_H
#define WFS_TREE_CONTROL_H

#include "tree/node/node.h"

/* Makes the directory and its files. -ENOMEM. */
int control_new(struct wfs_tree *tree);
void control_done(struct wfs_tree *tree);

/* Returns the size of the text; one that is out of date is generated again. */
int control_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node,
                    uint64_t *ret_n_bytes);

/* Returns when the text of a fixed file was generated. */
struct timespec control_mtime(const struct wfs_tree *tree, const struct wfs_node *node);

/* Holds the text of a fixed file; one that is out of date is generated again. */
int control_hold(const struct wfs_tree *tree, const struct wfs_node *node,
                 struct wfs_held_text **out);
ssize_t control_read_held(const struct wfs_held_text *text, uint64_t offset, void *buf,
                          size_t n_bytes);

/* Reads the text that was generated last. */
ssize_t control_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                     void *buf, size_t n_bytes);

#endif
