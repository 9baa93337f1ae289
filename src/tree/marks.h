/* SPDX-License-Identifier: MIT */
/*
 * What is taken back with the edits of some paths.
 */
#ifndef WFS_TREE_MARKS_H
#define WFS_TREE_MARKS_H

#include "tree/changes.h"

/* Names that are taken back: entries of the tree and of the pristine one. */
struct marks {
    const struct changes *changes;
    bool *now, *before;
    struct mark *todo;
    size_t n_todo, n_todo_room;
};

/*
 * Marks everything whose edits go together with those of the paths, which have "//" between them;
 * an empty text stands for all. -ENOENT: there is no such path, now or in the source. marks_done is
 * due in any case.
 */
int marks_make(const struct changes *changes, const char *paths, struct marks *ret,
               struct wfs_error *err);
void marks_done(struct marks *marks);

#endif
