/* SPDX-License-Identifier: MIT */
/*
 * What was loaded with a key. A file that is removed and made anew, as some editors and tar do, is
 * the same to who made it: it has the type that is known for its key, and its place in the output.
 */
#ifndef WFS_TREE_NAMESAKE_H
#define WFS_TREE_NAMESAKE_H

#include "tree/node/node.h"

/* To be called before anything can be new. -ENOMEM. */
int namesake_index(struct wfs_tree *tree);

/* The order of the tensor or value that was loaded with the key, or ORDER_NEW. */
uint32_t namesake_find(const struct wfs_tree *tree, const char *key, bool is_value);

/* The key of one of them. */
const char *namesake_key(const struct wfs_tree *tree, uint32_t order);

/*
 * A new file that nothing else was said of gets the description of the tensor that was loaded with
 * the key that it has by now. -EIO, -ENOMEM.
 */
int namesake_describe(struct wfs_tree *tree, struct wfs_node *node);

#endif
