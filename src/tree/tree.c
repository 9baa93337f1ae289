/* SPDX-License-Identifier: MIT */
/*
 * The tree as a whole: made and freed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/catalog.h"
#include "tree/build.h"
#include "tree/control/control.h"
#include "tree/digests.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/control/metadata.h"
#include "tree/replay.h"
#include "tree/stage/stage.h"
#include "tree/control/status.h"
#include "tree/file/valuefile.h"

/* Returns the time of the newest source, for nodes without a time of their own. */
static struct timespec newest_mtime(const struct wfs_catalog *catalog)
{
    int64_t ns = 0;
    for (size_t i = 0; i < catalog->n_sources; i++) {
        const int64_t of_source = catalog->sources[i]->identity.mtime_ns;
        ns = of_source > ns ? of_source : ns;
    }
    return ns == 0 ? node_now()
                   : (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

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

static int make(struct wfs_tree *tree, const char *base_text, struct wfs_error *err)
{
    tree->root = node_new(tree, NODE_DIR, 1);
    if (tree->root == NULL || status_new(&tree->status) < 0 || metadata_new(&tree->metadata) < 0 ||
        digests_new(&tree->digests) < 0 || valuefiles_new(tree->catalog, &tree->valuefiles) < 0)
        return wfs_fail_memory(err);
    const int code = build_tree(tree, err);
    if (code < 0)
        return code;
    if (control_new(tree) < 0 ||
        (tree->stage != NULL && base_text != NULL && stage_set_base(tree->stage, base_text) < 0))
        return wfs_fail_memory(err);
    if (tree->stage == NULL)
        return 0;
    const uint64_t n_bytes = n_bytes_of_removals(tree);
    const int replayed = replay(tree, err);
    if (replayed == 0)
        stage_prepare(tree->stage, n_bytes);
    return replayed;
}

int wfs_tree_new(const struct wfs_catalog *catalog, const struct wfs_tree_options *options,
                 struct wfs_tree **out, struct wfs_error *err)
{
    struct wfs_tree *tree = calloc(1, sizeof(*tree));
    if (tree == NULL) {
        wfs_stage_close(options->stage);
        return wfs_fail_memory(err);
    }
    tree->catalog = catalog;
    tree->options = *options;
    tree->options.stage = NULL;
    tree->options.base_text = NULL;
    tree->stage = options->stage;
    tree->entries.item_bytes = sizeof(struct entry);
    tree->nodes.item_bytes = sizeof(struct wfs_node);
    tree->mtime = newest_mtime(catalog);
    tree->n_inodes_made = hash_seed() >> 3; /* no handle of another mount names one of these */
    const int code = make(tree, options->base_text, err);
    if (code < 0) {
        tree->is_unmade = true;
        wfs_tree_free(tree);
        return code;
    }
    *out = tree;
    return 0;
}

void wfs_tree_free(struct wfs_tree *tree)
{
    if (tree == NULL)
        return;
    const int saved = errno;
    const bool is_kept = wfs_tree_has_pending(tree);
    edit_free_all(tree);
    if (tree->is_unmade)
        wfs_stage_close(tree->stage);
    else
        stage_free(tree->stage, is_kept);
    control_done(tree);
    digests_free(tree->digests);
    metadata_free(tree->metadata);
    valuefiles_free(tree->valuefiles);
    status_free(tree->status);
    map_done(&tree->map);
    map_done(&tree->loaded);
    key_cuts_done(&tree->cuts);
    pool_done(&tree->entries);
    pool_done(&tree->nodes);
    arena_done(&tree->arena);
    free(tree);
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
