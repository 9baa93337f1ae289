/* SPDX-License-Identifier: MIT */
/*
 * status.json: the status that the driver set, the counts of the tree, the state of the sources.
 */
#ifndef WFS_TREE_STATUS_H
#define WFS_TREE_STATUS_H

#include "tree/node/node.h"

struct status;

int status_new(struct status **out);
void status_free(struct status *status);

/* Adds the text as it is now. */
void status_render(const struct wfs_tree *tree, struct strbuf *text);

#endif
