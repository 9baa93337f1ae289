/* SPDX-License-Identifier: MIT */
/*
 * Changes of the tree as records of the journal. Each is written before the change is made, so that
 * a change that cannot be recorded does not happen; notes_settle takes the record back when the
 * change itself failed. While a journal is replayed nothing is recorded.
 */
#ifndef WFS_TREE_NOTES_H
#define WFS_TREE_NOTES_H

#include "tree/node/edit.h"

int notes_make(struct wfs_tree *tree, const struct wfs_node *dir, const char *name, bool is_dir);
int notes_move(struct wfs_tree *tree, const struct wfs_node *from_dir, const char *from_name,
               const struct wfs_node *to_dir, const char *to_name, unsigned flags);
int notes_link(struct wfs_tree *tree, const struct wfs_node *node, const struct wfs_node *dir,
               const char *name);
int notes_remove(struct wfs_tree *tree, const struct wfs_node *dir, const char *name);

/* Nothing is recorded for a node without a name: it could not be found again. */
int notes_edit(struct wfs_tree *tree, const struct wfs_node *node, uint64_t number);
int notes_synced(struct wfs_tree *tree, const struct wfs_node *node);

/* value NULL: the attribute is removed. */
int notes_attr(struct wfs_tree *tree, const struct wfs_node *node, const char *name,
               const char *value, size_t n_bytes);

/* paths as the record has them. */
int notes_revert(struct wfs_tree *tree, const char *paths);

/* Takes the last record back when code, the result of its change, is an error. Returns code. node
 * is NULL for changes of names. */
int notes_settle(struct wfs_tree *tree, const struct wfs_node *node, int code);

#endif
