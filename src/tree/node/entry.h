/* SPDX-License-Identifier: MIT */
/*
 * Entries: the names in directories that lead to nodes. Found by hash, listed by sequence number.
 */
#ifndef WFS_TREE_ENTRY_H
#define WFS_TREE_ENTRY_H

#include <weightfs/strbuf.h>
#include "tree/node/node.h"

/* Name of the file in the control directory that holds the metadata of the checkpoint. */
#define ENTRY_METADATA "metadata.json"

/* Returns the number of the entry, or 0. */
uint32_t entry_find(const struct wfs_tree *tree, const struct wfs_node *dir, const char *name);

enum entry_name { NAME_BORROWED, NAME_COPIED };

/*
 * Gives the node a name, at the end of the directory. A hidden one (is_listed false) is found but
 * not listed. -ENOMEM, with nothing changed.
 */
int entry_add(struct wfs_tree *tree, struct wfs_node *dir, const char *name, enum entry_name how,
              struct wfs_node *node, bool is_listed, uint32_t *ret_id);
void entry_remove(struct wfs_tree *tree, uint32_t id);

/* Makes the entry lead to another node. */
void entry_relink(struct wfs_tree *tree, uint32_t id, struct wfs_node *node);

/* Returns true when the directory is not empty. */
bool entry_has_any(const struct wfs_node *dir);

/*
 * Does what entry_add does, with a borrowed name, while a tree is built. The entry is not found
 * until entry_index_all, which is cheaper for many at once. -ENOMEM.
 */
int entry_append(struct wfs_tree *tree, struct wfs_node *dir, const char *name,
                 struct wfs_node *node, uint32_t order);
int entry_index_all(struct wfs_tree *tree);

/*
 * Sorts the entries of a directory by name and renumbers them, before it is first listed. Returns
 * the place of an entry with the same name as the one before it, or 0.
 */
uint32_t entry_sort(struct wfs_tree *tree, struct wfs_node *dir);

/* Returns the node that has the name ENTRY_METADATA in the control directory now, or NULL. */
struct wfs_node *entry_metadata(const struct wfs_tree *tree);

/* ---- names that entries spell ---- */

/* Adds the path from the root, without a leading slash. */
void entry_path(const struct wfs_tree *tree, uint32_t id, struct strbuf *text);

/* Returns the path for messages. */
struct wfs_quoted entry_quoted(const struct wfs_tree *tree, uint32_t id);

/* Returns true when a name on the path begins with a dot: the entry is not part of a commit. */
bool entry_is_scratch(const struct wfs_tree *tree, uint32_t id);

/*
 * Adds the key that the path spells, without a suffix ".npy" when has_suffix. -ENOENT: a name
 * begins with a dot; -ENOKEY: a part of the key is cut and not known.
 */
int entry_key(const struct wfs_tree *tree, uint32_t id, bool has_suffix, struct strbuf *text);

/* Does the same without the last n_suffix bytes of the name. */
int entry_key_without(const struct wfs_tree *tree, uint32_t id, size_t n_suffix,
                      struct strbuf *text);

/* Returns true when the name ends in ".npy" and has something before it. */
bool entry_has_suffix(const struct wfs_tree *tree, uint32_t id);

#endif
