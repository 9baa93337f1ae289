/* SPDX-License-Identifier: MIT */
/*
 * The content of a node, for the parts of the tree that look into it or replace it.
 */
#ifndef WFS_TREE_CONTENT_H
#define WFS_TREE_CONTENT_H

#include "tree/edit.h"

/*
 * The tensor as the tree shows it while its content is the catalog's: with the dtype and shape that
 * were set. Its key is the catalog's.
 */
struct wfs_tensor content_tensor(const struct wfs_node *node);

/* Bytes that stat shows. */
uint64_t content_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node);

/*
 * Gives the node a staged file that begins with the first n_keep bytes of what is shown. The node
 * is as it was when this fails.
 */
int content_stage(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep);

/* Replaces the content by a text, as a program that writes a file would. */
int content_put(struct wfs_tree *tree, struct wfs_node *node, const char *bytes, size_t n_bytes);

#endif
