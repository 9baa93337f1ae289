/* SPDX-License-Identifier: MIT */
/*
 * status.json as text and back: the names of its fields are in this file only.
 */
#ifndef WFS_TREE_STATUSFILE_H
#define WFS_TREE_STATUSFILE_H

#include <weightfs/status.h>
#include <weightfs/strbuf.h>

/* Adds a line for each field, each with a comma at its end: the sources of the mount, which are not
 * read back, follow. */
void statusfile_add(const struct wfs_status *status, struct strbuf *text);

/* Returns a copy in one block, with texts of its own; free it with free(3). NULL: no memory. */
struct wfs_status *statusfile_copy(const struct wfs_status *status);

#endif
