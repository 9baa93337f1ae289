/* SPDX-License-Identifier: MIT */
/*
 * Makes the changes again that the journal of an earlier process records.
 */
#ifndef WFS_TREE_REPLAY_H
#define WFS_TREE_REPLAY_H

#include "tree/node/node.h"

/* Fills tree->replayed. -EBADMSG: the journal does not fit the tree, or is damaged. */
int replay(struct wfs_tree *tree, struct wfs_error *err);

#endif
