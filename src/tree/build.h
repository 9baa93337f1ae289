/* SPDX-License-Identifier: MIT */
/*
 * Makes directories and files of a catalog.
 */
#ifndef WFS_TREE_BUILD_H
#define WFS_TREE_BUILD_H

#include "tree/node/node.h"

/* Makes the tree; the catalog and the texts of the options are borrowed. */
int pristine_new(const struct wfs_catalog *catalog, const struct wfs_tree_options *options,
                 struct wfs_tree **out, struct wfs_error *err);

/* Frees the tree, but not its stage. NULL is allowed. */
void pristine_free(struct wfs_tree *tree);

#endif
