/* SPDX-License-Identifier: MIT */
/*
 * Taking edits back while the tree is in use.
 */
#ifndef WFS_TREE_REVERT_H
#define WFS_TREE_REVERT_H

#include "tree/node/node.h"

/* Does what wfs_tree_revert does, of a tree that may have been committed. */
int revert(struct wfs_tree *tree, const char *paths, const struct wfs_tree_listener *listener,
           uint64_t *ret_n, struct wfs_error *err);

#endif
