/* SPDX-License-Identifier: MIT */
/*
 * The files of a tree with their keys and paths, for programs that have no mount.
 */
#include <weightfs/tree.h>

#include <errno.h>

#include "tree/file/outline.h"
#include "tree/node/entry.h"

static int visit_all(const struct wfs_tree *tree, const struct outline *outline, bool is_value,
                     int (*visit)(void *ctx, const struct wfs_tree_file *file), void *ctx)
{
    autostrbuf struct strbuf path = {0};
    int code = 0;
    for (size_t i = 0; i < outline->n_items && code == 0; i++) {
        const struct outline_item *item = &outline->items[i];
        path.n_bytes = 0;
        entry_path(tree, item->entry, &path);
        if (path.has_failed)
            return -ENOMEM;
        const struct wfs_tree_file file = {item->key, path.bytes, entry_at(tree, item->entry)->node,
                                           is_value};
        code = visit(ctx, &file);
    }
    return code;
}

int wfs_tree_each(const struct wfs_tree *tree,
                  int (*visit)(void *ctx, const struct wfs_tree_file *file), void *ctx)
{
    struct arena arena = {0};
    cleanup(outline_done) struct outline tensors = {0};
    cleanup(outline_done) struct outline values = {0};
    int code = outline_make(tree, &arena, &tensors, &values);
    if (code == 0)
        code = visit_all(tree, &tensors, false, visit, ctx);
    if (code == 0)
        code = visit_all(tree, &values, true, visit, ctx);
    arena_done(&arena);
    return code;
}
