/* SPDX-License-Identifier: MIT */
/*
 * The metadata of a checkpoint by name, and edits of it.
 */
#ifndef WFS_PATCH_META_H
#define WFS_PATCH_META_H

#include "base/text_index.h"
#include "patch/patch.h"

struct meta_index {
    const struct wfs_text *list;
    struct text_index names;
    const struct wfs_text **texts; /* by number of the name, malloc'ed */
};

/* -ENOMEM; meta_index_done is due in any case. */
int meta_index_init(struct meta_index *index, const struct wfs_text *list);
const struct wfs_text *meta_index_find(const struct meta_index *index, const char *name);
void meta_index_done(struct meta_index *index);

/* Adds edits of metadata: those that lead from one list to the other, with its order or just its
 * texts. -ENOMEM. */
int patch_compare_meta(struct wfs_patch *patch, const struct wfs_text *from,
                       const struct wfs_text *to, bool takes_order);

#endif
