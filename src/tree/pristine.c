/* SPDX-License-Identifier: MIT */
/*
 * Nodes that come from the catalog get the same inode numbers whenever it is built.
 */
#include "tree/pristine.h"

#include <errno.h>
#include <stdlib.h>

#include "tensor/catalog.h"
#include "tree/build.h"
#include "tree/control/control.h"
#include "tree/control/metadata.h"
#include "tree/control/status.h"
#include "tree/digests.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"

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

static int make(struct wfs_tree *tree, struct wfs_error *err)
{
    tree->root = node_new(tree, NODE_DIR, 1);
    if (tree->root == NULL || status_new(&tree->status) < 0 || metadata_new(&tree->metadata) < 0 ||
        digests_new(&tree->digests) < 0 || valuefiles_new(tree->catalog, &tree->valuefiles) < 0)
        return wfs_fail_memory(err);
    const int code = build_tree(tree, err);
    if (code < 0)
        return code;
    return control_new(tree) < 0 ? wfs_fail_memory(err) : 0;
}

int pristine_new(const struct wfs_catalog *catalog, const struct wfs_tree_options *options,
                 struct wfs_tree **out, struct wfs_error *err)
{
    struct wfs_tree *tree = calloc(1, sizeof(*tree));
    if (tree == NULL)
        return wfs_fail_memory(err);
    tree->catalog = catalog;
    tree->options = *options;
    tree->options.stage = NULL;
    tree->options.base_text = NULL;
    tree->entries.item_bytes = sizeof(struct entry);
    tree->nodes.item_bytes = sizeof(struct wfs_node);
    tree->mtime = newest_mtime(catalog);
    tree->n_inodes_made = hash_seed() >> 3; /* no handle of another mount names one of these */
    const int code = make(tree, err);
    if (code < 0) {
        pristine_free(tree);
        return code;
    }
    *out = tree;
    return 0;
}

int wfs_tree_unedited(const struct wfs_tree *tree, struct wfs_tree **out, struct wfs_error *err)
{
    struct wfs_tree_options options = tree->options;
    options.n_texts = options.n_made = 0;
    return pristine_new(tree->catalog, &options, out, err);
}

void pristine_free(struct wfs_tree *tree)
{
    if (tree == NULL)
        return;
    edit_free_all(tree);
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
}
