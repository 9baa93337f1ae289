/* SPDX-License-Identifier: MIT */
/*
 * The index is made with the first new file: renaming and removing do not need it.
 */
#include "tree/file/namesake.h"

#include <errno.h>
#include <string.h>
#include <weightfs/value.h>

#include "tree/file/description.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"

struct query {
    const struct wfs_tree *tree;
    const char *key;
    bool is_value;
};

const char *namesake_key(const struct wfs_tree *tree, uint32_t order)
{
    const size_t n_tensors = wfs_catalog_n_tensors(tree->catalog);
    return order < n_tensors ? wfs_catalog_tensor(tree->catalog, order)->key
                             : wfs_catalog_value_name(tree->catalog, order - n_tensors);
}

static bool is_match(const void *ctx, uint32_t order)
{
    const struct query *query = ctx;
    return (order >= wfs_catalog_n_tensors(query->tree->catalog)) == query->is_value &&
           strcmp(namesake_key(query->tree, order), query->key) == 0;
}

static uint64_t hash_of(const char *key)
{
    return hash_bytes(key, strlen(key), hash_seed());
}

/* A value without a file stays, whatever is created. */
static bool has_file(const struct wfs_tree *tree, uint32_t order)
{
    const size_t n_tensors = wfs_catalog_n_tensors(tree->catalog);
    return order < n_tensors || valuefile_is_shown(tree, order - n_tensors);
}

int namesake_index(struct wfs_tree *tree)
{
    const uint32_t n =
        (uint32_t)(wfs_catalog_n_tensors(tree->catalog) + wfs_catalog_n_values(tree->catalog));
    if (tree->loaded.n_slots > 0 || n == 0)
        return 0;
    if (map_reserve(&tree->loaded, n) < 0)
        return -ENOMEM;
    for (uint32_t order = 0; order < n; order++) {
        if (has_file(tree, order) &&
            map_add(&tree->loaded, hash_of(namesake_key(tree, order)), order) < 0)
            return -ENOMEM;
    }
    return 0;
}

uint32_t namesake_find(const struct wfs_tree *tree, const char *key, bool is_value)
{
    const struct query query = {tree, key, is_value};
    uint32_t order;
    return map_find(&tree->loaded, hash_of(key), is_match, &query, &order) ? order : ORDER_NEW;
}

int namesake_describe(struct wfs_tree *tree, struct wfs_node *node)
{
    autostrbuf struct strbuf key = {0};
    if (node->kind != NODE_FILE || edit_is_told(node))
        return 0;
    const int hides_suffix = description_hides_suffix(tree, node, node->entry);
    const int code =
        hides_suffix < 0 ? hides_suffix : entry_key(tree, node->entry, hides_suffix > 0, &key);
    const uint32_t order = code < 0 ? ORDER_NEW : namesake_find(tree, key.bytes, false);
    if (order != ORDER_NEW) {
        node->tensor = wfs_catalog_tensor(tree->catalog, order);
        node->edit->is_namesake = true;
    }
    return code == -ENOENT || code == -ENOKEY ? 0 : code;
}
