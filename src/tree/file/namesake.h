/* SPDX-License-Identifier: MIT */
/*
 * The tensor or value that was loaded with a key. A file that is removed and created again, as some
 * editors and tar do, gets the description of the tensor that had its key, and its place in the
 * output.
 */
#ifndef WFS_TREE_NAMESAKE_H
#define WFS_TREE_NAMESAKE_H

#include "tree/node/node.h"

/* Makes the index, before the first new file. -ENOMEM. */
int namesake_index(struct wfs_tree *tree);

/* Returns the order of the tensor or value that was loaded with the key, or ORDER_NEW. */
uint32_t namesake_find(const struct wfs_tree *tree, const char *key, bool is_value);

/* Returns the key of the tensor, or the name of the value, with that order. */
const char *namesake_key(const struct wfs_tree *tree, uint32_t order);

/*
 * Gives a new file without a description of its own the one of the tensor that was loaded with the
 * key that it has now. -EIO, -ENOMEM.
 */
int namesake_describe(struct wfs_tree *tree, struct wfs_node *node);

#endif
