/* SPDX-License-Identifier: MIT */
/*
 * Directories first, then files: only when all directories are there is it known which tensors are
 * prefixes of others. Neighbours in the catalog mostly share their directories, so each key is
 * compared with the one before it.
 */
#include "tree/build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tree/ties.h"

enum { NODES_MAX = 4000000 }; /* a bound on memory: each costs some 100 bytes */

struct build {
    struct wfs_tree *tree;
    struct wfs_error *err;
    struct ties ties;
    struct map inos;        /* nodes by their number */
    struct wfs_node **dirs; /* of each tensor */
    /* The directories of the key before, and the bytes of it that lead to each. */
    struct wfs_node *way[KEY_DEPTH_MAX];
    size_t n_bytes[KEY_DEPTH_MAX];
    unsigned depth;
};

static int fail_memory(struct build *build)
{
    return wfs_fail_memory(build->err);
}

/* ---- numbers that are the same at the next mount ---- */

struct ino_query {
    const struct wfs_tree *tree;
    uint64_t ino;
};

static bool is_ino(const void *ctx, uint32_t id)
{
    const struct ino_query *query = ctx;
    const struct wfs_node *node = pool_at(&query->tree->nodes, id);
    return node->ino == query->ino;
}

/* From the directory's number and the name. 0, 1 and the upper quarters are for others. */
static uint64_t path_ino(const struct build *build, const struct wfs_node *dir, const char *name)
{
    const uint64_t mask = (UINT64_C(1) << 62) - 1;
    struct ino_query query = {build->tree, hash_bytes(name, strlen(name), dir->ino) & mask};
    uint32_t id;
    while (query.ino < 2 || map_find(&build->inos, query.ino << 2, is_ino, &query, &id))
        query.ino = (query.ino + 1) & mask;
    return query.ino;
}

static struct wfs_node *make_node(struct build *build, enum node_kind kind, uint64_t ino)
{
    struct wfs_node *node = node_new(build->tree, kind, ino);
    return node == NULL || map_add(&build->inos, ino << 2, node->id) < 0 ? NULL : node;
}

/* ---- directories ---- */

/* The name in the arena, or where the key itself has it. NULL: no memory. */
static const char *name_of(struct build *build, struct key_part part, bool is_file)
{
    struct wfs_tree *tree = build->tree;
    const bool is_npy = is_file && tree->options.files == WFS_FILES_NPY;
    const size_t n_suffix = is_npy ? strlen(KEY_NPY) : 0;
    if (part.n_bytes + n_suffix <= KEY_NAME_MAX && key_is_plain(part.bytes, part.n_bytes)) {
        if (part.is_last && !is_npy)
            return part.bytes;
        if (!is_npy)
            return arena_copy(&tree->arena, part.bytes, part.n_bytes);
        return arena_print(&tree->arena, "%.*s" KEY_NPY, (int)part.n_bytes, part.bytes);
    }
    struct key_name name;
    key_encode(part.bytes, part.n_bytes, n_suffix, &name);
    if (name.is_cut && key_cuts_add(&tree->cuts, &tree->arena, &name, part.bytes, part.n_bytes) < 0)
        return NULL;
    return arena_print(&tree->arena, "%s%s", name.text, is_npy ? KEY_NPY : "");
}

static struct wfs_node *add_dir(struct build *build, struct wfs_node *parent, struct key_part part)
{
    struct wfs_tree *tree = build->tree;
    uint32_t id;
    const char *name = name_of(build, part, false);
    if (name == NULL)
        return NULL;
    id = entry_find(tree, parent, name);
    if (id != 0)
        return entry_at(tree, id)->node;
    struct wfs_node *dir = make_node(build, NODE_DIR, path_ino(build, parent, name));
    return dir == NULL || entry_add(tree, parent, name, NAME_BORROWED, dir, true, &id) < 0 ? NULL
                                                                                           : dir;
}

static struct key_iter iter_of(const struct build *build, const char *key)
{
    return (struct key_iter){key,
                             build->tree->options.layout == WFS_LAYOUT_FLAT ? 1 : KEY_DEPTH_MAX};
}

/* How many directories the key shares with the one before. */
static unsigned shared_depth(const struct build *build, const char *key, const char *before)
{
    size_t n_same = 0;
    while (before != NULL && key[n_same] == before[n_same] && key[n_same] != '\0')
        n_same++;
    unsigned depth = 0;
    while (depth < build->depth && build->n_bytes[depth] <= n_same)
        depth++;
    return depth;
}

static int add_dirs(struct build *build, const char *key, const char *before, struct wfs_node **ret)
{
    unsigned depth = shared_depth(build, key, before);
    struct wfs_node *dir = depth == 0 ? build->tree->root : build->way[depth - 1];
    const size_t n_shared = depth == 0 ? 0 : build->n_bytes[depth - 1];
    struct key_iter iter = iter_of(build, key);
    iter.at += n_shared;
    iter.n_left -= depth;
    for (struct key_part part = key_next(&iter); !part.is_last; part = key_next(&iter)) {
        dir = add_dir(build, dir, part);
        if (dir == NULL)
            return fail_memory(build);
        build->way[depth] = dir;
        build->n_bytes[depth++] = (size_t)(iter.at - key);
        if (build->tree->n_nodes > NODES_MAX)
            return wfs_fail(build->err, E2BIG, "more than %d tensors and directories", NODES_MAX);
    }
    build->depth = depth;
    *ret = dir;
    return 0;
}

static int add_all_dirs(struct build *build)
{
    const struct wfs_catalog *catalog = build->tree->catalog;
    const size_t n = wfs_catalog_n_tensors(catalog);
    const char *before = NULL;
    if (n > NODES_MAX)
        return wfs_fail(build->err, E2BIG, "more than %d tensors", NODES_MAX);
    build->dirs = calloc(n + 1, sizeof(struct wfs_node *));
    if (build->dirs == NULL)
        return fail_memory(build);
    for (size_t i = 0; i < n; i++) {
        const char *key = wfs_catalog_tensor(catalog, i)->key;
        const int code = add_dirs(build, key, before, &build->dirs[i]);
        if (code < 0)
            return code;
        before = key;
    }
    return 0;
}

/* ---- files ---- */

static struct key_part last_part(const struct build *build, const char *key)
{
    struct key_iter iter = iter_of(build, key);
    struct key_part part = key_next(&iter);
    while (!part.is_last)
        part = key_next(&iter);
    return part;
}

/* The directory that keeps the name of the file's part, or NULL. */
static struct wfs_node *find_dir(const struct build *build, const struct wfs_node *parent,
                                 struct key_part part, const char *name)
{
    struct wfs_tree *tree = build->tree;
    struct key_name plain;
    if (tree->options.layout == WFS_LAYOUT_FLAT)
        return NULL;
    if (tree->options.files == WFS_FILES_NPY) {
        key_encode(part.bytes, part.n_bytes, 0, &plain);
        name = plain.text;
    }
    const uint32_t id = entry_find(tree, parent, name);
    struct wfs_node *found = id == 0 ? NULL : entry_at(tree, id)->node;
    return found != NULL && found->kind == NODE_DIR ? found : NULL;
}

static int fail_twins(struct build *build, const char *key, uint32_t id)
{
    const struct entry *entry = entry_at(build->tree, id);
    const char *other = wfs_catalog_tensor(build->tree->catalog, entry->order)->key;
    if (strcmp(key, other) == 0)
        return wfs_fail(build->err, EBADMSG, "key '%s' is there twice", wfs_quote(key).text);
    return wfs_fail(build->err, EBADMSG, "keys '%s' and '%s' want the same file name",
                    wfs_quote(other).text, wfs_quote(key).text);
}

static struct wfs_node *node_of(struct build *build, uint32_t order, const struct wfs_node *dir,
                                const char *name)
{
    const struct wfs_tensor *tensor = wfs_catalog_tensor(build->tree->catalog, order);
    struct wfs_node *node = ties_find(&build->ties, tensor);
    if (node != NULL)
        return node;
    node = make_node(build, NODE_FILE, path_ino(build, dir, name));
    if (node == NULL)
        return NULL;
    node->tensor = tensor;
    build->tree->n_bytes += tensor->n_bytes;
    return ties_add(&build->ties, node) < 0 ? NULL : node;
}

static int add_file(struct build *build, uint32_t order)
{
    struct wfs_tree *tree = build->tree;
    const char *key = wfs_catalog_tensor(tree->catalog, order)->key;
    const struct key_part part = last_part(build, key);
    struct wfs_node *dir = build->dirs[order];
    const char *name = name_of(build, part, true);
    if (name == NULL)
        return fail_memory(build);
    struct wfs_node *same = find_dir(build, dir, part, name);
    if (same != NULL) {
        dir = same;
        name = tree->options.files == WFS_FILES_NPY ? KEY_SELF KEY_NPY : KEY_SELF;
    }
    uint32_t id = entry_find(tree, dir, name);
    if (id != 0)
        return fail_twins(build, key, id);
    struct wfs_node *node = node_of(build, order, dir, name);
    if (node == NULL || entry_add(tree, dir, name, NAME_BORROWED, node, true, &id) < 0)
        return fail_memory(build);
    entry_at(tree, id)->order = order;
    return 0;
}

static int add_all(struct build *build)
{
    struct wfs_tree *tree = build->tree;
    const uint32_t n = (uint32_t)wfs_catalog_n_tensors(tree->catalog);
    int code = add_all_dirs(build);
    if (code < 0)
        return code;
    const uint32_t n_entries = (uint32_t)tree->n_nodes + n + 8;
    if (map_reserve(&tree->map, n_entries) < 0 || map_reserve(&build->inos, n_entries) < 0 ||
        ties_init(&build->ties, tree->catalog) < 0)
        return fail_memory(build);
    for (uint32_t i = 0; i < n && code == 0; i++)
        code = add_file(build, i);
    return code;
}

int build_tree(struct wfs_tree *tree, struct wfs_error *err)
{
    struct build *build = calloc(1, sizeof(*build));
    if (build == NULL)
        return wfs_fail_memory(err);
    build->tree = tree;
    build->err = err;
    const int code = add_all(build);
    ties_done(&build->ties);
    map_done(&build->inos);
    free(build->dirs);
    free(build);
    for (uint32_t id = 1; id <= tree->nodes.n_items && code == 0; id++) {
        struct wfs_node *node = pool_at(&tree->nodes, id);
        if (node->kind == NODE_DIR)
            entry_sort(tree, node);
    }
    return code;
}
