/* SPDX-License-Identifier: MIT */
/*
 * Taking edits back while the tree is in use.
 */
#ifndef WFS_TREE_REVERT_H
#define WFS_TREE_REVERT_H

#include "tree/changes.h"
#include "tree/node/node.h"

/* Names that are taken back: entries of the tree and of the pristine one. */
struct marks {
    const struct changes *changes;
    bool *now, *before;
    struct mark *todo;
    size_t n_todo, n_todo_room;
};

/* Does what wfs_tree_revert does, of a tree that may have been committed. */
int revert(struct wfs_tree *tree, const char *paths, const struct wfs_tree_listener *listener,
           uint64_t *ret_n, struct wfs_error *err);

#endif
