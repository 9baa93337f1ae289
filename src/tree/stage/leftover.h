/* SPDX-License-Identifier: MIT */
/*
 * What an earlier process left in a staging directory, found out in one pass over its journal.
 */
#ifndef WFS_TREE_LEFTOVER_H
#define WFS_TREE_LEFTOVER_H

#include <weightfs/stage.h>

#include "tree/stage/journal.h"

/* A zeroed struct is that of a new staging directory. */
struct leftover {
    struct wfs_leftover found; /* its text is the one below */
    char *base;                /* malloc'ed */
};

/* Opens the journal, so that it can be appended to, and fills a zeroed struct. path is for
 * messages.
 */
int leftover_read(struct leftover *leftover, struct journal *journal, const char *path,
                  struct wfs_error *err);
void leftover_done(struct leftover *leftover);

/* Reads a small file of the directory whole, malloc'ed; *ret is NULL when there is no such regular
 * file. A negative errno of reading. */
int leftover_read_text(int dir_fd, const char *name, char **ret);

#endif
