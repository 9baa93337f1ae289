/* SPDX-License-Identifier: MIT */
/*
 * The tree as a catalog again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/catalog.h"
#include "tree/about.h"
#include "tree/edit.h"
#include "tree/metadata.h"
#include "tree/outline.h"
#include "tree/valuefile.h"

static int fail_path(const struct wfs_tree *tree, uint32_t id, int code, const char *reason,
                     struct wfs_error *err)
{
    autostrbuf struct strbuf path = {0};
    entry_path(tree, id, &path);
    return wfs_fail(err, code, "'%s' %s", wfs_quote(path.bytes == NULL ? "?" : path.bytes).text,
                    reason);
}

static bool is_match(const void *ctx, uint32_t id)
{
    const struct outline_item *const *pair = ctx; /* all items, and the one that is looked for */
    return strcmp(pair[0][id].key, pair[1]->key) == 0;
}

/* No two files may give one key. */
static int check_keys(const struct wfs_tree *tree, const struct outline *outline, struct map *map,
                      struct wfs_error *err)
{
    if (outline->n_items >= UINT32_MAX || map_reserve(map, (uint32_t)outline->n_items) < 0)
        return wfs_fail_memory(err);
    for (uint32_t i = 0; i < outline->n_items; i++) {
        const struct outline_item *item = &outline->items[i];
        const struct outline_item *const pair[] = {outline->items, item};
        uint32_t twin;
        if (item->key == NULL)
            return fail_path(tree, item->entry, EINVAL,
                             "has a name that is cut, and nothing says what its key is: rename it",
                             err);
        const uint64_t hash = hash_bytes(item->key, strlen(item->key), hash_seed());
        if (map_find(map, hash, is_match, pair, &twin)) {
            autostrbuf struct strbuf one = {0}, other = {0};
            entry_path(tree, outline->items[twin].entry, &one);
            entry_path(tree, item->entry, &other);
            return wfs_fail(err, EINVAL, "'%s' and '%s' both give the key '%s': rename one of them",
                            wfs_quote(one.bytes == NULL ? "?" : one.bytes).text,
                            wfs_quote(other.bytes == NULL ? "?" : other.bytes).text,
                            wfs_quote(item->key).text);
        }
        if (tree->options.saves_safetensors && strcmp(item->key, "__metadata__") == 0)
            return fail_path(tree, item->entry, EINVAL,
                             "gives a key that safetensors keeps for itself: rename it", err);
        if (map_add(map, hash, i) < 0)
            return wfs_fail_memory(err);
    }
    return 0;
}

/* That of the tensor which the name was loaded with, whatever the file is by now. */
static uint32_t place_of(const struct wfs_tree *tree, const struct outline_item *item)
{
    return item->order < wfs_catalog_n_tensors(tree->catalog)
               ? wfs_catalog_tensor(tree->catalog, item->order)->place
               : 0;
}

/* ---- tensors ---- */

/* Items that were added already, by their nodes: names of one edited file have one source. */
struct added {
    const struct wfs_tree *tree;
    const struct outline *outline;
    struct map map;
    const struct wfs_node *wanted;
};

static bool is_of_node(const void *ctx, uint32_t id)
{
    const struct added *added = ctx;
    return entry_at(added->tree, added->outline->items[id].entry)->node == added->wanted;
}

static int find_source(struct added *added, const struct wfs_node *node,
                       struct wfs_catalog *catalog, struct source **ret)
{
    uint32_t id;
    const uint64_t hash = hash_bytes(&node->id, sizeof(node->id), hash_seed());
    added->wanted = node;
    if (map_find(&added->map, hash, is_of_node, added, &id)) {
        *ret = catalog->tensors[id].stored.source;
        return 0;
    }
    if (about_source(added->tree, node, ret) < 0 || catalog_adopt_source(catalog, *ret) < 0)
        return -ENOMEM;
    return node->n_links > 1 ? map_add(&added->map, hash, (uint32_t)catalog->n_tensors) : 0;
}

static int add_tensor(struct added *added, const struct outline_item *item,
                      struct wfs_catalog *catalog, struct wfs_error *err)
{
    const struct wfs_tree *tree = added->tree;
    const struct wfs_node *node = entry_at(tree, item->entry)->node;
    struct source *source = NULL;
    struct about about;
    if (node->edit != NULL && node->edit->is_lost)
        return fail_path(tree, item->entry, EIO, "is lost: the staging directory failed", err);
    int code = about_node(tree, node, item->entry, &catalog->arena, &about, err);
    if (code == 0)
        code = about_check(tree, node, item->entry, &about, err);
    if (code < 0)
        return err != NULL && err->code == 0 ? wfs_fail(err, -code, "%s", strerror(-code)) : code;
    if (edit_is_staged(node) && node->edit->number != 0 &&
        find_source(added, node, catalog, &source) < 0)
        return wfs_fail_memory(err);
    struct wfs_tensor *tensor = catalog_add(catalog);
    if (tensor == NULL ||
        about_tensor(tree, node, item->entry, &about, source, &catalog->arena, tensor) < 0)
        return wfs_fail_memory(err);
    tensor->key = item->key;
    tensor->place = place_of(tree, item);
    if (tensor->trouble != NULL)
        return wfs_fail(err, EIO, "'%s' cannot be read: %s", wfs_quote(tensor->key).text,
                        tensor->trouble);
    return 0;
}

/* What is no tensor stays as it was loaded, but for what was removed. */
static int add_values(const struct wfs_tree *tree, struct wfs_catalog *catalog)
{
    const struct wfs_catalog *loaded = tree->catalog;
    catalog_copy_graph(catalog, loaded);
    for (size_t i = 0; i < loaded->n_values; i++) {
        const char *name;
        if (valuefile_is_removed(tree, i))
            continue;
        if (valuefile_name(tree, i, &catalog->arena, &name) < 0 ||
            catalog_add_value(catalog, name, loaded->values[i].id, loaded->values[i].place) < 0)
            return -ENOMEM;
    }
    return 0;
}

int wfs_tree_snapshot(const struct wfs_tree *tree, struct wfs_catalog **out, struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    cleanup(outline_done) struct outline outline = {0};
    struct map map = {0};
    if (catalog_new(&catalog) < 0 || outline_make(tree, &catalog->arena, &outline) < 0 ||
        catalog_reserve(catalog, outline.n_items) < 0)
        return wfs_fail_memory(err);
    int code = check_keys(tree, &outline, &map, err);
    map_done(&map);
    struct added added = {.tree = tree, .outline = &outline};
    for (size_t i = 0; i < outline.n_items && code == 0; i++)
        code = add_tensor(&added, &outline.items[i], catalog, err);
    map_done(&added.map);
    if (code == 0)
        code = metadata_fill(tree, catalog, err);
    if (code < 0)
        return code;
    if (add_values(tree, catalog) < 0)
        return wfs_fail_memory(err);
    catalog->format = tree->catalog->format;
    catalog->container = tree->catalog->container;
    *out = steal(&catalog);
    return 0;
}
