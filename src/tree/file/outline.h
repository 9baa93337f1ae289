/* SPDX-License-Identifier: MIT */
/*
 * What a commit of the tree would contain: its files in the order of the output, each with its key.
 *
 * A file that is removed and created again, as some editors and tar do, gets the description of the
 * tensor that had its key, its namesake, and its place in the output. Backup copies that editors
 * and tools leave beside the file they replace are scratch files: `w~`, `w.~1~`, `w.bak`, `w.orig`,
 * `w.rej`, `w.swp` and `#w#` beside `w`.
 */
#ifndef WFS_TREE_OUTLINE_H
#define WFS_TREE_OUTLINE_H

#include "tree/node/node.h"

/* Makes the index, before the first new file. -ENOMEM. */
int namesake_index(struct wfs_tree *tree);

/*
 * Gives a new file without a description of its own the one of the tensor that was loaded with the
 * key that it has now. -EIO, -ENOMEM.
 */
int namesake_describe(struct wfs_tree *tree, struct wfs_node *node);

/* Returns true when the name is that of a backup copy of some other name. */
bool backup_is_name(const char *name);

/* Returns true when the name can only be that of a backup copy: it gives no key, as "%self~". */
bool backup_is_only(const char *name);

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
