/* SPDX-License-Identifier: MIT */
/*
 * Numbers of nodes are not compared: a file that was removed and restored has another one.
 */
#include "tree/changes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <weightfs/value.h>

#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/build.h"

/* ---- nodes ---- */

static bool is_ino(const void *ctx, uint32_t id)
{
    const struct changes *const *changes = ((const void *const *)ctx)[0];
    const struct wfs_node *node = ((const void *const *)ctx)[1];
    const struct wfs_node *loaded = pool_at(&(*changes)->loaded->nodes, id);
    return loaded->ino == node->ino && loaded->kind == node->kind;
}

static uint64_t hash_of(const struct wfs_node *node)
{
    return hash_bytes(&node->ino, sizeof(node->ino), hash_seed());
}

static bool is_taken(const struct wfs_node *node, uint32_t id)
{
    return node->id == id && !node_is_unlinked(node);
}

static void match(struct changes *changes, struct wfs_node *node, uint32_t loaded_id)
{
    changes->now[loaded_id] = node;
    changes->before[node->id] = loaded_id;
}

/*
 * Nodes whose inode number does not follow from a path have their first number: those of the
 * control directory, of which only the metadata can be replaced, and a few whose hash another had.
 */
static void match_made(struct changes *changes, struct wfs_node *node)
{
    const struct pool *nodes = &changes->loaded->nodes;
    const struct wfs_node *loaded = pool_has(nodes, node->id) ? pool_at(nodes, node->id) : NULL;
    const struct wfs_node *metadata = entry_metadata(changes->loaded);
    if (node->kind == NODE_METADATA && metadata != NULL)
        match(changes, node, metadata->id);
    else if (node == changes->tree->control)
        match(changes, node, changes->loaded->control->id);
    else if (loaded != NULL && node->generation == 0 && (loaded->ino & INO_MADE) != 0 &&
             loaded->kind == node->kind && node->kind <= NODE_VALUE)
        match(changes, node, node->id);
}

static int match_nodes(struct changes *changes)
{
    const struct wfs_tree *tree = changes->tree, *loaded = changes->loaded;
    cleanup(map_done) struct map map = {0};
    if (map_reserve(&map, loaded->nodes.n_items) < 0)
        return -ENOMEM;
    for (uint32_t id = 1; id <= loaded->nodes.n_items; id++) {
        const struct wfs_node *node = pool_at(&loaded->nodes, id);
        if ((node->ino & INO_MADE) == 0 && map_add(&map, hash_of(node), id) < 0)
            return -ENOMEM;
    }
    for (uint32_t id = 1; id <= tree->nodes.n_items; id++) {
        struct wfs_node *node = pool_at(&tree->nodes, id);
        const struct changes *const self = changes;
        const void *const query[] = {&self, node};
        uint32_t found;
        if (!is_taken(node, id))
            continue;
        if ((node->ino & INO_MADE) != 0)
            match_made(changes, node);
        else if (map_find(&map, hash_of(node), is_ino, query, &found))
            match(changes, node, found);
    }
    return 0;
}

/* ---- names ---- */

static void pair(struct changes *changes, uint32_t id, uint32_t loaded_id)
{
    changes->origin[id] = loaded_id;
    changes->current[loaded_id] = id;
}

static bool is_placed(const struct entry *entry)
{
    return entry->node != NULL && entry->node->kind != NODE_DIR && entry->order != ORDER_NEW;
}

/* Files keep their place in the output, whatever their name is. */
static int match_files(struct changes *changes)
{
    const struct wfs_tree *tree = changes->tree, *loaded = changes->loaded;
    const size_t n_orders =
        wfs_catalog_n_tensors(tree->catalog) + wfs_catalog_n_values(tree->catalog);
    autofree uint32_t *by_order = calloc(n_orders + 1, sizeof(*by_order));
    if (by_order == NULL)
        return -ENOMEM;
    for (uint32_t id = 1; id <= loaded->entries.n_items; id++) {
        if (is_placed(entry_at(loaded, id)))
            by_order[entry_at(loaded, id)->order] = id;
    }
    for (uint32_t id = 1; id <= tree->entries.n_items; id++) {
        const struct entry *entry = entry_at(tree, id);
        if (is_placed(entry) && by_order[entry->order] != 0)
            pair(changes, id, by_order[entry->order]);
    }
    return 0;
}

/* A directory has one name, and so has the file of the metadata. */
static void match_others(struct changes *changes)
{
    const struct wfs_tree *loaded = changes->loaded;
    for (uint32_t id = 1; id <= loaded->entries.n_items; id++) {
        const struct wfs_node *node = entry_at(loaded, id)->node;
        const struct wfs_node *now = node == NULL ? NULL : changes->now[node->id];
        if (now != NULL && (now->kind == NODE_DIR || now->kind == NODE_METADATA) && now->entry != 0)
            pair(changes, now->entry, id);
    }
}

/* ---- both ---- */

static int make_room(struct changes *changes)
{
    const struct wfs_tree *tree = changes->tree, *loaded = changes->loaded;
    free(changes->now);
    free(changes->current);
    free(changes->origin);
    free(changes->before);
    changes->n_entries = tree->entries.n_items;
    changes->n_nodes = tree->nodes.n_items;
    changes->now = calloc(loaded->nodes.n_items + 1u, sizeof(*changes->now));
    changes->current = calloc(loaded->entries.n_items + 1u, sizeof(*changes->current));
    changes->origin = calloc(changes->n_entries + 1u, sizeof(*changes->origin));
    changes->before = calloc(changes->n_nodes + 1u, sizeof(*changes->before));
    return changes->now == NULL || changes->current == NULL || changes->origin == NULL ||
                   changes->before == NULL
               ? -ENOMEM
               : 0;
}

int changes_refresh(struct changes *changes)
{
    int code = make_room(changes);
    if (code == 0)
        code = match_nodes(changes);
    if (code == 0)
        code = match_files(changes);
    if (code == 0)
        match_others(changes);
    return code;
}

int changes_find(const struct wfs_tree *tree, struct changes *ret, struct wfs_error *err)
{
    *ret = (struct changes){.tree = tree};
    const int code = wfs_tree_unedited(tree, &ret->loaded, err);
    if (code < 0)
        return code;
    return changes_refresh(ret) < 0 ? wfs_fail_memory(err) : 0;
}

void changes_done(struct changes *changes)
{
    free(changes->now);
    free(changes->current);
    free(changes->origin);
    free(changes->before);
    pristine_free(changes->loaded);
    *changes = (struct changes){0};
}

const struct wfs_node *changes_before(const struct changes *changes, const struct wfs_node *node)
{
    const uint32_t id = node->id <= changes->n_nodes ? changes->before[node->id] : 0;
    return id == 0 ? NULL : pool_at(&changes->loaded->nodes, id);
}

bool changes_is_edited(const struct wfs_node *node)
{
    const struct edit *edit = node->kind == NODE_DIR ? NULL : node->edit;
    if (edit == NULL)
        return false;
    bool is_edited = edit->is_staged || edit->has_dtype || edit->has_shape;
    for (size_t i = 0; i < TENSOR_N_TEXTS; i++)
        is_edited |= edit->texts[i] != NULL;
    return is_edited;
}

bool changes_is_in_place(const struct changes *changes, uint32_t loaded_entry)
{
    const struct entry *was = entry_at(changes->loaded, loaded_entry);
    const uint32_t id = changes->current[loaded_entry];
    if (id == 0)
        return false;
    const struct entry *is = entry_at(changes->tree, id);
    return is->dir == changes->now[was->dir->id] && is->node == changes->now[was->node->id] &&
           strcmp(is->name, was->name) == 0;
}

uint64_t changes_count_names(const struct changes *changes)
{
    const struct wfs_tree *tree = changes->tree, *loaded = changes->loaded;
    uint64_t n = 0;
    for (uint32_t id = 1; id <= loaded->entries.n_items; id++) {
        const struct entry *entry = entry_at(loaded, id);
        const bool is_of_commit = entry->node != NULL && entry->node->kind <= NODE_METADATA &&
                                  entry->node->kind != NODE_TENSORS;
        /* A directory that is gone went with the files in it. */
        n += is_of_commit && !changes_is_in_place(changes, id) &&
             (entry->node->kind != NODE_DIR || changes->current[id] != 0);
    }
    for (uint32_t id = 1; id <= tree->entries.n_items; id++) {
        const struct entry *entry = entry_at(tree, id);
        n += entry->node != NULL && changes->origin[id] == 0 &&
             changes->before[entry->node->id] != 0 && entry->node->kind != NODE_DIR &&
             !entry_is_scratch(tree, id);
    }
    return n;
}
