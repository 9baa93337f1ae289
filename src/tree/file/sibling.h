/* SPDX-License-Identifier: MIT */
/*
 * A directory copied without attributes: "layer/2/x" of the size of "layer/0/x" is described as
 * that, if all files that lie so agree.
 */
#ifndef WFS_TREE_SIBLING_H
#define WFS_TREE_SIBLING_H

#include "tree/file/description.h"

/* Does what description_make does, and describes a file of which nothing is known by a sibling. */
int sibling_describe(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                     struct arena *arena, struct description *ret, struct wfs_error *err);

#endif
