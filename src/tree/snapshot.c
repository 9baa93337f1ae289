/* SPDX-License-Identifier: MIT */
/*
 * Makes a catalog of the tree. Names of one edited file share a source, so that savers see the tie.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/catalog.h"
#include "tensor/shape.h"
#include "tree/control/texts.h"
#include "tree/file/description.h"
#include "tree/file/editfile.h"
#include "tree/file/outline.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tensor/catalog_values.h"

/* Passes an error on as a problem of the item that is left out then; *ret_is_good: there is none.
 */
static int pass(const struct wfs_tree_problems *problems, int code, struct wfs_error *err,
                bool *ret_is_good)
{
    *ret_is_good = code == 0;
    if (code == 0 || problems == NULL || code == -ENOMEM)
        return code;
    problems->visit(problems->ctx, err->text);
    *err = (struct wfs_error){0};
    return 0;
}

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

static int fail_twins(const struct wfs_tree *tree, uint32_t one_id, uint32_t other_id,
                      const char *key, struct wfs_error *err)
{
    autostrbuf struct strbuf one = {0}, other = {0};
    entry_path(tree, one_id, &one);
    entry_path(tree, other_id, &other);
    return wfs_fail(err, EINVAL, "'%s' and '%s' both give the key '%s': rename one of them",
                    wfs_quote(one.bytes == NULL ? "?" : one.bytes).text,
                    wfs_quote(other.bytes == NULL ? "?" : other.bytes).text, wfs_quote(key).text);
}

static int check_key(const struct wfs_tree *tree, const struct outline *outline,
                     const struct map *map, const struct outline_item *item, uint64_t hash,
                     struct wfs_error *err)
{
    const struct outline_item *const pair[] = {outline->items, item};
    uint32_t twin;
    if (map_find(map, hash, is_match, pair, &twin))
        return fail_twins(tree, outline->items[twin].entry, item->entry, item->key, err);
    if (tree->options.reserved_key != NULL && strcmp(item->key, tree->options.reserved_key) == 0)
        return fail_path(tree, item->entry, EINVAL,
                         "gives a key that safetensors reserves: rename it", err);
    return 0;
}

/* No two files may give one key. Those that are a problem are left out. */
static int check_keys(const struct wfs_tree *tree, struct outline *outline, struct map *map,
                      const struct wfs_tree_problems *problems, struct wfs_error *err)
{
    size_t n_good = 0;
    int code = 0;
    if (outline->n_items >= UINT32_MAX || map_reserve(map, (uint32_t)outline->n_items) < 0)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < outline->n_items && code == 0; i++) {
        const struct outline_item item = outline->items[i];
        const uint64_t hash =
            item.key == NULL ? 0 : hash_bytes(item.key, strlen(item.key), hash_seed());
        bool is_good;
        code = item.key == NULL
                   ? fail_path(tree, item.entry, EINVAL,
                               "has a shortened name, and its key is not known: rename it", err)
                   : check_key(tree, outline, map, &item, hash, err);
        code = pass(problems, code, err, &is_good);
        if (!is_good)
            continue;
        if (map_add(map, hash, (uint32_t)n_good) < 0)
            return wfs_fail_memory(err);
        outline->items[n_good++] = item;
    }
    if (code == 0)
        outline->n_items = n_good;
    return code;
}

/* Returns the path of an entry, in the arena of the catalog. */
static const char *path_of(const struct wfs_tree *tree, uint32_t id, struct wfs_catalog *catalog)
{
    autostrbuf struct strbuf path = {0};
    entry_path(tree, id, &path);
    return path.has_failed ? NULL : arena_copy(&catalog->arena, path.bytes, path.n_bytes);
}

/* Notes the path of an entry, and that of another one (0: none), for the report. */
static int add_note(const struct wfs_tree *tree, uint32_t id, uint32_t other,
                    struct wfs_catalog *catalog, const struct wfs_note **list)
{
    struct wfs_note *note = arena_calloc(&catalog->arena, 1, sizeof(*note));
    if (note == NULL)
        return -ENOMEM;
    note->path = path_of(tree, id, catalog);
    note->other = other == 0 ? NULL : path_of(tree, other, catalog);
    note->next = *list;
    *list = note;
    return note->path == NULL || (other != 0 && note->other == NULL) ? -ENOMEM : 0;
}

/* Returns the place of the tensor that the name was loaded with, whatever the file is now. */
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
    if (editfile_source(added->tree, node, ret) < 0 || catalog_adopt_source(catalog, *ret) < 0)
        return -ENOMEM;
    return node->n_links > 1 ? map_add(&added->map, hash, (uint32_t)catalog->n_tensors) : 0;
}

static int add_tensor(struct added *added, const struct outline_item *item,
                      struct wfs_catalog *catalog, struct wfs_error *err)
{
    const struct wfs_tree *tree = added->tree;
    const struct wfs_node *node = entry_at(tree, item->entry)->node;
    struct source *source = NULL;
    struct description description;
    if (node->edit != NULL && node->edit->is_lost)
        return fail_path(tree, item->entry, EIO, "is lost: the staging directory failed", err);
    int code = sibling_describe(tree, node, item->entry, &catalog->arena, &description, err);
    if (code == 0)
        code = description_check(tree, node, item->entry, &description, err);
    if (code < 0)
        return code;
    if (description.sibling != 0 &&
        add_note(tree, item->entry, description.sibling, catalog, &catalog->described) < 0)
        return wfs_fail_memory(err);
    if (edit_is_staged(node) && node->edit->number != 0 &&
        find_source(added, node, catalog, &source) < 0)
        return wfs_fail_memory(err);
    struct wfs_tensor *tensor = catalog_add(catalog);
    if (tensor == NULL || description_tensor(tree, node, item->entry, &description, source,
                                             &catalog->arena, tensor) < 0)
        return wfs_fail_memory(err);
    /* Whoever reads it may do so without the tree, whose edits may own the shape. */
    if (node->edit != NULL && shape_own(&tensor->shape, &catalog->arena) < 0)
        return wfs_fail_memory(err);
    tensor->key = item->key;
    tensor->place = place_of(tree, item);
    if (tensor->trouble == NULL)
        return 0;
    catalog->n_tensors--;
    return wfs_fail(err, EIO, "'%s' cannot be read: %s", wfs_quote(tensor->key).text,
                    tensor->trouble);
}

/* ---- values ---- */

static int edit_value(const struct wfs_tree *tree, const struct outline_item *item,
                      struct wfs_catalog *catalog, uint32_t *id, struct wfs_error *err)
{
    autofree char *text = NULL;
    size_t n_bytes = 0;
    autostrbuf struct strbuf path = {0};
    const struct wfs_node *node = entry_at(tree, item->entry)->node;
    if (node->edit->is_lost)
        return fail_path(tree, item->entry, EIO, "is lost: the staging directory failed", err);
    const int code = editfile_read_all(tree, node, VALUEFILE_MAX, &text, &n_bytes);
    if (code == -EFBIG)
        return fail_path(tree, item->entry, E2BIG, "is larger than 64 MiB, the limit for JSON",
                         err);
    if (code < 0)
        return fail_path(tree, item->entry, -code, strerror(-code), err);
    entry_path(tree, item->entry, &path);
    if (path.has_failed)
        return wfs_fail_memory(err);
    return catalog_edit_value(catalog, *id, path.bytes, text, n_bytes, id, err);
}

static int add_value(const struct wfs_tree *tree, const struct outline_item *item,
                     struct wfs_catalog *catalog, struct wfs_error *err)
{
    const size_t origin = valuefile_origin(tree, item->entry, item->order);
    const struct catalog_value none = {0};
    const struct catalog_value *was = origin == SIZE_MAX ? &none : &tree->catalog->values[origin];
    uint32_t id = was->id;
    int code = 0;
    if (item->key == NULL)
        return fail_path(tree, item->entry, EINVAL,
                         "has a shortened name, and its key is not known: rename it", err);
    if (edit_is_staged(entry_at(tree, item->entry)->node))
        code = edit_value(tree, item, catalog, &id, err);
    if (code < 0)
        return code;
    if (catalog_add_value(catalog, item->key, id, was->place) < 0)
        return wfs_fail_memory(err);
    catalog->values[catalog->n_values - 1].is_edited = id != was->id;
    return 0;
}

/* Values without a file stay as they were loaded. */
static int add_hidden_values(const struct wfs_tree *tree, struct wfs_catalog *catalog)
{
    const struct wfs_catalog *loaded = tree->catalog;
    for (size_t i = 0; i < loaded->n_values; i++) {
        const struct catalog_value *value = &loaded->values[i];
        if (!valuefile_is_shown(tree, i) &&
            catalog_add_value(catalog, value->name, value->id, value->place) < 0)
            return -ENOMEM;
    }
    return 0;
}

static bool has_loaded_name(const struct wfs_tree *tree, const struct outline_item *item)
{
    const size_t origin = valuefile_origin(tree, item->entry, item->order);
    return origin != SIZE_MAX && item->key == tree->catalog->values[origin].name;
}

static bool has_loaded_key(const struct wfs_tree *tree, const struct outline_item *item)
{
    return item->order < wfs_catalog_n_tensors(tree->catalog) &&
           item->key == wfs_catalog_tensor(tree->catalog, item->order)->key;
}

/* map is of the items, which are tensors and values with new names. */
static int check_name(const struct wfs_tree *tree, const struct outline *items,
                      const struct map *map, const struct outline_item *value,
                      struct wfs_error *err)
{
    const struct outline_item *const pair[] = {items->items, value};
    const uint64_t hash = hash_bytes(value->key, strlen(value->key), hash_seed());
    uint32_t twin;
    if (!map_find(map, hash, is_match, pair, &twin) || has_loaded_key(tree, &items->items[twin]))
        return 0;
    return fail_twins(tree, items->items[twin].entry, value->entry, value->key, err);
}

/*
 * A tensor or value that is new or was renamed may not have the name of another one. Those that
 * were loaded may: "a.b" and the "b" of "a" are two things in a pickle.
 */
static int check_value_names(const struct wfs_tree *tree, const struct outline *tensors,
                             const struct outline *values, const struct wfs_tree_problems *problems,
                             struct wfs_error *err)
{
    cleanup(map_done) struct map map = {0};
    size_t n_all = tensors->n_items;
    if (values->n_items == 0)
        return 0;
    autofree struct outline_item *all = calloc(n_all + values->n_items, sizeof(*all));
    if (all == NULL)
        return wfs_fail_memory(err);
    if (n_all > 0)
        memcpy(all, tensors->items, n_all * sizeof(*all));
    for (size_t i = 0; i < values->n_items; i++) {
        if (!has_loaded_name(tree, &values->items[i]))
            all[n_all++] = values->items[i];
    }
    struct outline whole = {.items = all, .n_items = n_all};
    bool is_good;
    int code = check_keys(tree, &whole, &map, problems, err);
    for (size_t i = 0; i < values->n_items && code == 0; i++) {
        if (has_loaded_name(tree, &values->items[i]))
            code = pass(problems, check_name(tree, &whole, &map, &values->items[i], err), err,
                        &is_good);
    }
    return code;
}

static int add_values(const struct wfs_tree *tree, const struct outline *tensors,
                      const struct outline *values, struct wfs_catalog *catalog,
                      const struct wfs_tree_problems *problems, struct wfs_error *err)
{
    bool is_good;
    catalog_copy_graph(catalog, tree->catalog);
    graph_fork(&catalog->graph, &tree->catalog->graph, &catalog->arena);
    if (add_hidden_values(tree, catalog) < 0)
        return wfs_fail_memory(err);
    int code = check_value_names(tree, tensors, values, problems, err);
    for (size_t i = 0; i < values->n_items && code == 0; i++)
        code = pass(problems, add_value(tree, &values->items[i], catalog, err), err, &is_good);
    return code;
}

static int add_tensors(const struct wfs_tree *tree, struct outline *outline,
                       struct wfs_catalog *catalog, const struct wfs_tree_problems *problems,
                       struct wfs_error *err)
{
    bool is_good;
    cleanup(map_done) struct map keys = {0};
    struct added added = {.tree = tree, .outline = outline};
    int code = check_keys(tree, outline, &keys, problems, err);
    if (code == 0 && catalog_reserve(catalog, outline->n_items) < 0)
        code = wfs_fail_memory(err);
    /* Those that are left out leave no gap: the place of an item is that of its tensor. */
    size_t n_good = 0;
    for (size_t i = 0; i < outline->n_items && code == 0; i++) {
        outline->items[n_good] = outline->items[i];
        code = pass(problems, add_tensor(&added, &outline->items[n_good], catalog, err), err,
                    &is_good);
        n_good += is_good;
    }
    if (code == 0)
        outline->n_items = n_good;
    map_done(&added.map);
    return code;
}

static int add_backups(const struct wfs_tree *tree, const struct outline *outline,
                       struct wfs_catalog *catalog)
{
    for (size_t i = 0; i < outline->n_backups; i++) {
        if (add_note(tree, outline->backups[i], 0, catalog, &catalog->backups) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int fill(const struct wfs_tree *tree, struct wfs_catalog *catalog,
                const struct wfs_tree_problems *problems, struct wfs_error *err)
{
    bool is_good;
    cleanup(outline_done) struct outline tensors = {0};
    cleanup(outline_done) struct outline values = {0};
    int code = outline_make(tree, &catalog->arena, &tensors, &values);
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    if (code < 0)
        return wfs_fail(err, -code, "cannot read the staging directory: %s", strerror(-code));
    if (add_backups(tree, &values, catalog) < 0 || add_backups(tree, &tensors, catalog) < 0)
        return wfs_fail_memory(err);
    code = add_tensors(tree, &tensors, catalog, problems, err);
    if (code == 0)
        code = pass(problems, metadata_fill(tree, catalog, err), err, &is_good);
    return code < 0 ? code : add_values(tree, &tensors, &values, catalog, problems, err);
}

int wfs_tree_snapshot_most(const struct wfs_tree *tree, const struct wfs_tree_problems *problems,
                           struct wfs_catalog **out, struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (catalog_new(&catalog) < 0)
        return wfs_fail_memory(err);
    const int code = fill(tree, catalog, problems, err);
    if (code < 0)
        return code;
    catalog->format = tree->catalog->format;
    catalog->container = tree->catalog->container;
    *out = steal(&catalog);
    return 0;
}

int wfs_tree_snapshot(const struct wfs_tree *tree, struct wfs_catalog **out, struct wfs_error *err)
{
    return wfs_tree_snapshot_most(tree, NULL, out, err);
}
