/* SPDX-License-Identifier: MIT */
/*
 * Does again what the journal of an earlier process says.
 */
#ifndef WFS_TREE_REPLAY_H
#define WFS_TREE_REPLAY_H

#include "tree/node/node.h"

/* Fills tree->replayed. -EBADMSG: the journal does not fit the tree, or is damaged. */
int replay(struct wfs_tree *tree, struct wfs_error *err);

#endif
