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

/* 0: no such entry. */
uint32_t entry_find(const struct wfs_tree *tree, const struct wfs_node *dir, const char *name);

enum entry_name { NAME_BORROWED, NAME_COPIED };

/*
 * Names the node, at the end of the directory's order. A hidden one (is_listed false) is found but
 * not listed. Nothing has changed when it fails: -ENOMEM.
 */
int entry_add(struct wfs_tree *tree, struct wfs_node *dir, const char *name, enum entry_name how,
              struct wfs_node *node, bool is_listed, uint32_t *ret_id);
void entry_remove(struct wfs_tree *tree, uint32_t id);

/* Leads the entry to another node. */
void entry_relink(struct wfs_tree *tree, uint32_t id, struct wfs_node *node);

/* Is there anything in the directory? */
bool entry_has_any(const struct wfs_node *dir);

/*
 * While a tree is built: as entry_add with a borrowed name, but the entry is not found until
 * entry_index_all, which many at once make cheaper. -ENOMEM.
 */
int entry_append(struct wfs_tree *tree, struct wfs_node *dir, const char *name,
                 struct wfs_node *node, uint32_t order);
int entry_index_all(struct wfs_tree *tree);

/*
 * Sorts what is in the directory by name and numbers it anew, before anybody has seen it. Returns
 * the place of an entry with the same name as the one before it, or 0.
 */
uint32_t entry_sort(struct wfs_tree *tree, struct wfs_node *dir);

/* What has the name ENTRY_METADATA in the control directory now, or NULL. */
struct wfs_node *entry_metadata(const struct wfs_tree *tree);

/* ---- names that entries spell ---- */

/* The path from the root, without a slash in front. */
void entry_path(const struct wfs_tree *tree, uint32_t id, struct strbuf *text);

/* Part of no commit: some name on its path begins with a dot. */
bool entry_is_scratch(const struct wfs_tree *tree, uint32_t id);

/*
 * The key that the path spells, without a suffix ".npy" when has_suffix. -ENOENT: scratch; -ENOKEY:
 * a part of it is cut and not known.
 */
int entry_key(const struct wfs_tree *tree, uint32_t id, bool has_suffix, struct strbuf *text);

/* The same without the last n_suffix bytes of the name. */
int entry_key_without(const struct wfs_tree *tree, uint32_t id, size_t n_suffix,
                      struct strbuf *text);

/* True when the name ends in ".npy" and has something before it. */
bool entry_has_suffix(const struct wfs_tree *tree, uint32_t id);

#endif
