/* SPDX-License-Identifier: MIT */
/*
 * Looks in the directories beside each one on the path. A sibling is not described by one of its
 * own, so nothing is looked for twice.
 */
#include "tree/file/sibling.h"

#include <string.h>

#include "tensor/shape.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"

enum { LOOKED_AT_MAX = 16384, DEPTH_MAX = 64 };

struct search {
    const struct wfs_tree *tree;
    uint32_t path[DEPTH_MAX]; /* entries, the file's first */
    uint64_t n_bytes;
    struct arena arena;
    struct description description; /* of found */
    uint32_t found;
    unsigned n_looked_at;
    bool is_over; /* there is no answer */
};

/* Follows the names of the path below the directory, down to the file's. */
static uint32_t descend(const struct search *search, const struct wfs_node *dir, unsigned level)
{
    uint32_t id = 0;
    while (level-- > 0) {
        id = entry_find(search->tree, dir, entry_at(search->tree, search->path[level])->name);
        if (id == 0)
            return 0;
        dir = entry_at(search->tree, id)->node;
        if ((dir->kind == NODE_DIR) != (level > 0))
            return 0;
    }
    return id;
}

static void compare(struct search *search, uint32_t id)
{
    const struct wfs_node *node = entry_at(search->tree, id)->node;
    struct description other;
    if (node->kind != NODE_FILE || edit_n_bytes(node) != search->n_bytes ||
        description_make(search->tree, node, id, &search->arena, &other, NULL) < 0 ||
        !other.has_dtype || !other.has_shape || other.is_framed)
        return;
    if (search->found == 0) {
        search->found = id;
        search->description = other;
    } else if (other.dtype != search->description.dtype ||
               !wfs_shape_is_equal(&other.shape, &search->description.shape)) {
        search->is_over = true;
    }
}

/* Looks beside the directory at that level of the path, in the one that holds it. */
static void look_beside(struct search *search, unsigned level)
{
    const uint32_t own = search->path[level];
    const struct wfs_node *dir = entry_at(search->tree, own)->dir;
    for (uint32_t i = 0; i < dir->directory->n_ids && !search->is_over; i++) {
        const uint32_t id = dir->directory->ids[i];
        const struct entry *entry = id == 0 ? NULL : entry_at(search->tree, id);
        if (entry == NULL || id == own || entry->node == NULL || entry->node->kind != NODE_DIR ||
            entry->name[0] == '.')
            continue;
        search->is_over = search->n_looked_at++ == LOOKED_AT_MAX;
        const uint32_t file = descend(search, entry->node, level);
        if (file != 0)
            compare(search, file);
    }
}

/* Finds a described file of the same size whose path differs in the name of one directory. None is
 * found where two of them differ in dtype or shape, or there are too many to look at. */
static void find(struct search *search, uint32_t id)
{
    unsigned depth = 0;
    for (uint32_t at = id; at != 0 && depth < DEPTH_MAX;
         at = entry_at(search->tree, at)->dir->entry)
        search->path[depth++] = at;
    for (unsigned level = 1; level < depth && depth < DEPTH_MAX && !search->is_over; level++)
        look_beside(search, level);
}

int sibling_describe(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                     struct arena *arena, struct description *ret, struct wfs_error *err)
{
    struct search search = {.tree = tree, .n_bytes = edit_n_bytes(node)};
    const int code = description_make(tree, node, id, arena, ret, err);
    if (code < 0 || id == 0 || !edit_is_staged(node) || ret->has_dtype || ret->has_shape ||
        ret->is_framed)
        return code;
    find(&search, id);
    arena_done(&search.arena);
    if (search.found == 0 || search.is_over)
        return 0;
    /* The shape is that of the catalog or of an edit: only headers have one in the arena. */
    ret->sibling = search.found;
    ret->has_dtype = ret->has_shape = true;
    ret->dtype = search.description.dtype;
    ret->shape = search.description.shape;
    return 0;
}
