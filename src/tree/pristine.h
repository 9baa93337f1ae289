/* SPDX-License-Identifier: MIT */
/*
 * What has become of each name and file of the catalog: a tree beside a pristine one of the same
 * catalog, with the names and files of both matched. A file knows which one of the catalog it is, a
 * name is recognised by its place in the output, or by its directory. Here are the list of changes,
 * and taking them back.
 */
#ifndef WFS_PRISTINE_H
#define WFS_PRISTINE_H

#include "tree/node/node.h"

/*
 * Makes directories and files of a catalog.
 */

/* Makes the tree; the catalog and the texts of the options are borrowed. */
int pristine_new(const struct wfs_catalog *catalog, const struct wfs_tree_options *options,
                 struct wfs_tree **out, struct wfs_error *err);

/* Frees the tree, but not its stage. NULL is allowed. */
void pristine_free(struct wfs_tree *tree);

struct changes {
    const struct wfs_tree *tree;
    struct wfs_tree *loaded; /* the pristine one */
    struct wfs_node **now; /* by node of loaded: that of the tree; NULL: it has no name any more */
    uint32_t *current;     /* by entry of loaded: that of the tree; 0: removed */
    uint32_t *origin;      /* by entry of the tree: that of loaded; 0: new */
    uint32_t *before;      /* by node of the tree: that of loaded; 0: new */
    uint32_t n_entries, n_nodes; /* of the tree, for which there is room */
    struct arena arena;          /* of the arrays */
};

/* Matches the tree with its catalog. changes_done is due in any case. -ENOMEM. */
int changes_find(const struct wfs_tree *tree, struct changes *ret, struct wfs_error *err);

/* Matches again, after changes of the tree. -ENOMEM. */
int changes_refresh(struct changes *changes);
void changes_done(struct changes *changes);

/* Returns the node of the pristine tree that the node is; NULL: it is new. */
const struct wfs_node *changes_before(const struct changes *changes, const struct wfs_node *node);

/* Returns true when content or description of the node are not those of the catalog. */
bool changes_is_edited(const struct wfs_node *node);

/* Returns true when a name of the catalog is in the tree as it was loaded. */
bool changes_is_in_place(const struct changes *changes, uint32_t loaded_entry);

/* Returns how many names a commit would show that are new, gone, or lead elsewhere. */
uint64_t changes_count_names(const struct changes *changes);

/* Does what wfs_tree_revert does, of a tree that may have been committed. */
int revert(struct wfs_tree *tree, const char *paths, const struct wfs_tree_listener *listener,
           uint64_t *ret_n, struct wfs_error *err);

#endif
