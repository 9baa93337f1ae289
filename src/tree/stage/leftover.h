/* SPDX-License-Identifier: MIT */
/*
 * What an earlier process left in a staging directory, found out from its journal.
 */
#ifndef WFS_TREE_LEFTOVER_H
#define WFS_TREE_LEFTOVER_H

#include "tree/stage/stage.h"

/* Fills stage->leftover and makes the journal ready to be written on. */
int leftover_read(struct wfs_stage *stage, const char *path, struct wfs_error *err);

#endif
