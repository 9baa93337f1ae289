/* SPDX-License-Identifier: MIT */
/*
 * What a commit of the tree would contain: its files in the order of the output, each with its key.
 */
#ifndef WFS_TREE_OUTLINE_H
#define WFS_TREE_OUTLINE_H

#include "tree/node/node.h"

struct outline_item {
    const char *key; /* NULL: a cut name on its path is not known */
    uint32_t order, entry;
};

struct outline {
    struct outline_item *items; /* malloc'ed */
    size_t n_items, n_room;
    uint32_t *backups; /* malloc'ed; entries of backup copies, which are left out */
    size_t n_backups, n_backup_room;
};

/*
 * Fills zeroed outlines: of the tensors, and, unless NULL, of the files that are values (see
 * valuefile.h), whose keys are the names of the values. Keys that are not the catalog's own are in
 * the arena. -EIO, -ENOMEM; outline_done is due in any case.
 */
int outline_make(const struct wfs_tree *tree, struct arena *arena, struct outline *ret_tensors,
                 struct outline *ret_values);
void outline_done(struct outline *outline);

#endif
