/* SPDX-License-Identifier: MIT */
/*
 * The tree as a whole: made and freed.
 */
#include <errno.h>
#include <string.h>

#include "tree/node/entry.h"
#include "tree/pristine.h"
#include "tree/replay.h"
#include "tree/stage/stage.h"

/* Returns about how many bytes the records have that remove each name of a tree as it was built. */
static uint64_t n_bytes_of_removals(const struct wfs_tree *tree)
{
    enum { N_RECORD = 32 }; /* bytes beside the path */
    uint64_t n_bytes = 0;
    for (uint32_t id = 1; id <= tree->entries.n_items; id++) {
        n_bytes += N_RECORD;
        for (uint32_t at = id; at != 0; at = entry_at(tree, at)->dir->entry)
            n_bytes += strlen(entry_at(tree, at)->name) + 1;
    }
    return n_bytes;
}

/* Puts the edits that the stage has on a pristine tree. */
static int stage_up(struct wfs_tree *tree, const char *base_text, struct wfs_error *err)
{
    if (base_text != NULL && stage_set_base(tree->stage, base_text) < 0)
        return wfs_fail_memory(err);
    const uint64_t n_bytes = n_bytes_of_removals(tree);
    const int code = replay(tree, err);
    if (code == 0)
        stage_prepare(tree->stage, n_bytes);
    return code;
}

int wfs_tree_new(const struct wfs_catalog *catalog, const struct wfs_tree_options *options,
                 struct wfs_tree **out, struct wfs_error *err)
{
    struct wfs_tree *tree;
    int code = pristine_new(catalog, options, &tree, err);
    if (code < 0) {
        wfs_stage_close(options->stage);
        return code;
    }
    tree->stage = options->stage;
    if (tree->stage != NULL)
        code = stage_up(tree, options->base_text, err);
    if (code < 0) {
        tree->is_unmade = true;
        wfs_tree_free(tree);
        return code;
    }
    *out = tree;
    return 0;
}

/* The edits are freed first: some of their files are removed with them. */
void wfs_tree_free(struct wfs_tree *tree)
{
    if (tree == NULL)
        return;
    const int saved = errno;
    const bool is_kept = wfs_tree_has_pending(tree), is_unmade = tree->is_unmade;
    struct wfs_stage *stage = tree->stage;
    pristine_free(tree);
    if (is_unmade)
        wfs_stage_close(stage);
    else
        stage_free(stage, is_kept);
    errno = saved;
}

bool wfs_tree_is_writable(const struct wfs_tree *tree)
{
    return tree_is_open(tree);
}

struct wfs_node *wfs_tree_root(const struct wfs_tree *tree)
{
    return tree->root;
}
