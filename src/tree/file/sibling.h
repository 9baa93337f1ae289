/* SPDX-License-Identifier: MIT */
/*
 * A directory copied without attributes: "layer/2/x" of the size of "layer/0/x" is described as
 * that, if all files that lie so agree.
 */
#ifndef WFS_TREE_SIBLING_H
#define WFS_TREE_SIBLING_H

#include "tree/node/node.h"

/*
 * Returns the entry of a described file of the same size whose path differs from that of the entry
 * id in the name of one directory. 0: there is none, two of them differ in dtype or shape, or there
 * are too many to look at.
 */
uint32_t sibling_find(const struct wfs_tree *tree, uint32_t id);

#endif
