/* SPDX-License-Identifier: MIT */
/*
 * What a commit of the tree would hold: its files in the order of the output, each with its key.
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
};

/* Files that are values, see valuefile.h; a key is the name of the value. */
int outline_values(const struct wfs_tree *tree, struct arena *arena, struct outline *ret);

/*
 * Fills a zeroed outline; keys that are not the catalog's own are in the arena. -ENOMEM;
 * outline_done is due in any case.
 */
int outline_make(const struct wfs_tree *tree, struct arena *arena, struct outline *ret);
void outline_done(struct outline *outline);

#endif
