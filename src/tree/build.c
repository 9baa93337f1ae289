/* SPDX-License-Identifier: MIT */
/*
 * A tree as the catalog alone makes it: directories first, then files, because which tensors are
 * prefixes of others is known only when all directories exist. Neighbours in the catalog mostly
 * share their directories, so each key is compared with the one before it. Nodes that come from the
 * catalog get the same inode numbers whenever it is built.
 */
#include "tree/pristine.h"

#include <weightfs/array.h>
#include <weightfs/value.h>
#include "catalog/catalog.h"
#include "tensor/tensor.h"
#include "tree/content.h"
#include "tree/control/control.h"
#include "tree/control/texts.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_BITS = 1 << 23,
    N_AHEAD = 16, /* nodes whose bits are fetched before they are needed */
};

struct doubts {
    uint64_t *seen; /* a bit for each of some hashes; malloc'ed */
    uint32_t *ids;  /* nodes whose bit another one had before; malloc'ed */
    uint32_t n_ids;
    size_t n_room;
};

/* ---- inode numbers ---- */

/*
 * Numbers are hashes of paths, so duplicates are next to impossible unless names are prepared for
 * it. A table of all numbers would cost more than the rest of the tree; one bit for each finds the
 * few that need a closer look.
 */

/* Returns the number that the name in the directory gives. */
static uint64_t inodes_of_name(const struct wfs_node *dir, const char *name)
{
    const uint64_t ino = hash_bytes(name, strlen(name), dir->ino) & (INO_MADE - 1);
    return ino < 2 ? ino + 2 : ino;
}

static uint64_t hash_of(const struct wfs_node *node)
{
    return hash_bytes(&node->ino, sizeof(node->ino), hash_seed());
}

static int find_doubts(const struct wfs_tree *tree, struct doubts *doubts)
{
    const uint32_t n = tree->nodes.n_items;
    uint64_t bits[N_AHEAD];
    doubts->seen = calloc(N_BITS / 64, sizeof(*doubts->seen));
    if (doubts->seen == NULL)
        return -ENOMEM;
    for (uint32_t id = 1; id <= n + N_AHEAD; id++) {
        uint64_t *bit = &bits[id % N_AHEAD];
        if (id > N_AHEAD) {
            uint64_t *word = &doubts->seen[*bit / 64];
            const uint64_t mask = UINT64_C(1) << *bit % 64;
            if ((*word & mask) != 0) {
                if (array_reserve(&doubts->ids, sizeof(*doubts->ids), doubts->n_ids, 1,
                                  &doubts->n_room) < 0)
                    return -ENOMEM;
                doubts->ids[doubts->n_ids++] = id - N_AHEAD;
            }
            *word |= mask;
        }
        if (id <= n) {
            *bit = hash_of(pool_at(&tree->nodes, id)) % N_BITS;
            __builtin_prefetch(&doubts->seen[*bit / 64], 1);
        }
    }
    return 0;
}

struct query {
    const struct wfs_tree *tree;
    const struct wfs_node *node;
};

static bool is_twin(const void *ctx, uint32_t id)
{
    const struct query *query = ctx;
    const struct wfs_node *node = pool_at(&query->tree->nodes, id);
    return node != query->node && node->ino == query->node->ino;
}

/* map ends with the doubts that differ from each other. */
static int settle_doubts(struct wfs_tree *tree, const struct doubts *doubts, struct map *map)
{
    uint32_t twin;
    for (uint32_t i = 0; i < doubts->n_ids; i++) {
        struct wfs_node *node = pool_at(&tree->nodes, doubts->ids[i]);
        const struct query query = {tree, node};
        if (map_find(map, hash_of(node), is_twin, &query, &twin))
            node->ino = node_next_ino(tree);
        else if (map_add(map, hash_of(node), node->id) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Gives another number to each node whose number an earlier one has, once all nodes exist. -ENOMEM.
 */
static int inodes_settle(struct wfs_tree *tree)
{
    struct doubts doubts = {0};
    struct map map = {0};
    int code = find_doubts(tree, &doubts);
    if (code == 0)
        code = settle_doubts(tree, &doubts, &map);
    for (uint32_t id = 1; id <= tree->nodes.n_items && code == 0 && map.n_used > 0; id++) {
        const struct query query = {tree, pool_at(&tree->nodes, id)};
        uint32_t twin;
        if (map_find(&map, hash_of(query.node), is_twin, &query, &twin))
            ((struct wfs_node *)pool_at(&tree->nodes, twin))->ino = node_next_ino(tree);
    }
    free(doubts.seen);
    free(doubts.ids);
    map_done(&map);
    return code;
}

/* Where a tensor's file goes. */
struct place {
    struct wfs_node *dir;
    uint32_t n_bytes; /* of the key that lead to it */
};

struct build {
    struct wfs_tree *tree;
    struct wfs_error *err;
    struct arena arena;
    struct place *places; /* of each tensor */
    bool has_ties;        /* some two tensors may be tied */
    struct map ties;      /* nodes by their views */
    /* The directories of the key before, and the bytes of it that lead to each. */
    struct wfs_node *way[KEY_DEPTH_MAX];
    size_t n_bytes[KEY_DEPTH_MAX];
    unsigned depth;
};

/* ---- directories ---- */

static char *copy_name(struct wfs_tree *tree, const char *bytes, size_t n_bytes, const char *suffix)
{
    const size_t n_suffix = strlen(suffix);
    char *name = arena_chars(&tree->arena, n_bytes + n_suffix + 1);
    if (name == NULL)
        return NULL;
    memcpy(name, bytes, n_bytes);
    memcpy(name + n_bytes, suffix, n_suffix + 1);
    return name;
}

/* Makes the name, in the arena or where the key itself has it. */
static int name_of(struct build *build, struct key_part part, const char *suffix, const char **ret)
{
    struct wfs_tree *tree = build->tree;
    const size_t n_suffix = strlen(suffix);
    if (part.n_bytes + n_suffix <= KEY_NAME_MAX && key_is_plain(part.bytes, part.n_bytes)) {
        *ret = part.is_last && n_suffix == 0 ? part.bytes
                                             : copy_name(tree, part.bytes, part.n_bytes, suffix);
    } else {
        struct key_name name;
        key_encode(part.bytes, part.n_bytes, n_suffix, &name);
        const int code =
            name.is_cut ? key_cuts_add(&tree->cuts, &tree->arena, &name, part.bytes, part.n_bytes)
                        : 0;
        if (code == -EEXIST) /* one key would take the place of the other */
            return wfs_fail(build->err, EBADMSG,
                            "two keys have different parts that are too long for a name and have "
                            "the same hash: '%s'; rename one of them with the option remap",
                            wfs_quote_n(part.bytes, part.n_bytes).text);
        if (code < 0)
            return wfs_fail_memory(build->err);
        *ret = copy_name(tree, name.text, name.n_bytes, suffix);
    }
    return *ret == NULL ? wfs_fail_memory(build->err) : 0;
}

/* Finds or makes the directory of a part. */
static int add_dir(struct build *build, struct key_part part, struct wfs_node **dir)
{
    struct wfs_tree *tree = build->tree;
    struct wfs_node *parent = *dir;
    const char *name;
    const int code = name_of(build, part, "", &name);
    if (code < 0)
        return code;
    uint32_t id = entry_find(tree, parent, name);
    *dir =
        id != 0 ? entry_at(tree, id)->node : node_new(tree, NODE_DIR, inodes_of_name(parent, name));
    if (*dir == NULL ||
        (id == 0 && entry_add(tree, parent, name, NAME_BORROWED, *dir, true, &id) < 0))
        return wfs_fail_memory(build->err);
    return 0;
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

static int add_dirs(struct build *build, const char *key, const char *before, struct place *ret)
{
    unsigned depth = shared_depth(build, key, before);
    struct wfs_node *dir = depth == 0 ? build->tree->root : build->way[depth - 1];
    const size_t n_shared = depth == 0 ? 0 : build->n_bytes[depth - 1];
    const bool is_flat = build->tree->options.layout == WFS_LAYOUT_FLAT;
    struct key_iter iter = {key + n_shared, (is_flat ? 1 : KEY_DEPTH_MAX) - depth};
    for (struct key_part part = key_next(&iter); !part.is_last; part = key_next(&iter)) {
        const int code = add_dir(build, part, &dir);
        if (code < 0)
            return code;
        build->way[depth] = dir;
        build->n_bytes[depth++] = (size_t)(iter.at - key);
        if (build->tree->n_nodes > NODES_MAX)
            return wfs_fail(build->err, E2BIG, "more than %d tensors and directories", NODES_MAX);
    }
    build->depth = depth;
    *ret = (struct place){dir, depth == 0 ? 0 : (uint32_t)build->n_bytes[depth - 1]};
    return 0;
}

static int add_all_dirs(struct build *build)
{
    const struct wfs_catalog *catalog = build->tree->catalog;
    const size_t n_tensors = wfs_catalog_n_tensors(catalog);
    const size_t n = n_tensors + wfs_catalog_n_values(catalog);
    const char *before = NULL;
    if (n > NODES_MAX)
        return wfs_fail(build->err, E2BIG, "more than %d tensors and values", NODES_MAX);
    build->places = arena_calloc(&build->arena, n + 1, sizeof(*build->places));
    if (build->places == NULL)
        return wfs_fail_memory(build->err);
    for (size_t i = 0; i < n; i++) {
        const char *key = i < n_tensors ? wfs_catalog_tensor(catalog, i)->key
                                        : wfs_catalog_value_name(catalog, i - n_tensors);
        const int code = add_dirs(build, key, before, &build->places[i]);
        if (code < 0)
            return code;
        before = key;
    }
    return 0;
}

/* ---- files ---- */

/* The directory that has the part's name, or NULL. Only directories can be found yet. */
static struct wfs_node *find_dir(const struct build *build, const struct wfs_node *parent,
                                 struct key_part part, const char *name)
{
    const struct wfs_tree *tree = build->tree;
    struct key_name plain;
    if (tree->options.layout == WFS_LAYOUT_FLAT)
        return NULL;
    if (tree->options.files == WFS_FILES_NPY) {
        key_encode(part.bytes, part.n_bytes, 0, &plain);
        name = plain.text;
    }
    const uint32_t id = entry_find(tree, parent, name);
    return id == 0 ? NULL : entry_at(tree, id)->node;
}

static int fail_twins(struct build *build, const struct entry *one, const struct entry *other)
{
    const struct wfs_catalog *catalog = build->tree->catalog;
    const char *key = wfs_catalog_tensor(catalog, one->order)->key;
    const char *other_key = wfs_catalog_tensor(catalog, other->order)->key;
    if (strcmp(key, other_key) == 0)
        return wfs_fail(build->err, EBADMSG, "duplicate key '%s'", wfs_quote(key).text);
    return wfs_fail(build->err, EBADMSG, "keys '%s' and '%s' have the same file name",
                    wfs_quote(key).text, wfs_quote(other_key).text);
}

/* Most files hold their tensors one after the other. Offsets that only grow mean that nothing is
 * tied, and then no table is made. */
static int look_for_ties(struct build *build)
{
    const struct wfs_catalog *catalog = build->tree->catalog;
    const size_t n = wfs_catalog_n_tensors(catalog);
    const struct wfs_stored *before = NULL;
    for (size_t i = 0; i < n && !build->has_ties; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        if (tensor->n_bytes == 0)
            continue;
        /* A source that comes back after another one could repeat what it had. */
        build->has_ties = before != NULL && (before->source != tensor->stored.source ||
                                             before->offset >= tensor->stored.offset);
        before = &tensor->stored;
    }
    return build->has_ties ? map_reserve(&build->ties, (uint32_t)n) : 0;
}

static bool is_tied(const void *ctx, uint32_t id)
{
    const struct query *query = ctx; /* a node of the tensor that is looked for */
    const struct wfs_node *node = pool_at(&query->tree->nodes, id);
    return tied_are_same(node->tensor, query->node->tensor);
}

/* Tensors that are the same view of the same bytes share a node. */
static struct wfs_node *node_of(struct build *build, uint32_t order, const struct wfs_node *dir,
                                const char *name)
{
    struct wfs_tree *tree = build->tree;
    const struct wfs_tensor *tensor = wfs_catalog_tensor(tree->catalog, order);
    const struct wfs_node like = {.tensor = tensor};
    const struct query query = {tree, &like};
    const bool may_be_tied = build->has_ties && tensor->n_bytes > 0;
    uint32_t id;
    if (may_be_tied && map_find(&build->ties, tied_hash(tensor), is_tied, &query, &id))
        return pool_at(&tree->nodes, id);
    struct wfs_node *node = node_new(tree, NODE_FILE, inodes_of_name(dir, name));
    if (node == NULL)
        return NULL;
    node->tensor = tensor;
    tree->n_bytes += tensor->n_bytes;
    return may_be_tied && map_add(&build->ties, tied_hash(tensor), node->id) < 0 ? NULL : node;
}

static int add_file(struct build *build, uint32_t order)
{
    struct wfs_tree *tree = build->tree;
    const char *key = wfs_catalog_tensor(tree->catalog, order)->key;
    const struct place *place = &build->places[order];
    const struct key_part part = {key + place->n_bytes, strlen(key + place->n_bytes), true};
    const bool is_npy = tree->options.files == WFS_FILES_NPY;
    struct wfs_node *dir = place->dir;
    const char *name;
    const int code = name_of(build, part, is_npy ? KEY_NPY : "", &name);
    if (code < 0)
        return code;
    struct wfs_node *same = find_dir(build, dir, part, name);
    if (same != NULL) {
        dir = same;
        name = is_npy ? KEY_SELF KEY_NPY : KEY_SELF;
    }
    struct wfs_node *node = node_of(build, order, dir, name);
    return node == NULL || entry_append(tree, dir, name, node, order) < 0
               ? wfs_fail_memory(build->err)
               : 0;
}

static int sort_all(struct build *build)
{
    struct wfs_tree *tree = build->tree;
    for (uint32_t id = 1; id <= tree->nodes.n_items; id++) {
        struct wfs_node *node = pool_at(&tree->nodes, id);
        const uint32_t twin = node->kind == NODE_DIR ? entry_sort(tree, node) : 0;
        if (twin != 0)
            return fail_twins(build, entry_at(tree, node->directory->ids[twin - 1]),
                              entry_at(tree, node->directory->ids[twin]));
    }
    return 0;
}

/* Tensors go first: a value whose name one of them has is left to the other ways to see it. */
static int add_value(struct build *build, uint32_t value)
{
    struct wfs_tree *tree = build->tree;
    const char *key = wfs_catalog_value_name(tree->catalog, value);
    const struct place *place = &build->places[wfs_catalog_n_tensors(tree->catalog) + value];
    const struct key_part part = {key + place->n_bytes, strlen(key + place->n_bytes), true};
    const char *name;
    uint32_t id;
    const int code = name_of(build, part, VALUEFILE_SUFFIX, &name);
    if (code < 0)
        return code;
    if (entry_find(tree, place->dir, name) != 0)
        return 0;
    struct wfs_node *node = node_new(tree, NODE_VALUE, inodes_of_name(place->dir, name));
    if (node == NULL)
        return wfs_fail_memory(build->err);
    node->value = value;
    if (entry_add(tree, place->dir, name, NAME_BORROWED, node, true, &id) < 0)
        return wfs_fail_memory(build->err);
    entry_at(tree, id)->order = (uint32_t)wfs_catalog_n_tensors(tree->catalog) + value;
    valuefile_add(tree, node);
    return 0;
}

static int add_all(struct build *build)
{
    struct wfs_tree *tree = build->tree;
    const uint32_t n = (uint32_t)wfs_catalog_n_tensors(tree->catalog);
    const uint32_t n_values = (uint32_t)wfs_catalog_n_values(tree->catalog);
    int code = add_all_dirs(build);
    if (code == 0 && look_for_ties(build) < 0)
        code = wfs_fail_memory(build->err);
    for (uint32_t i = 0; i < n && code == 0; i++)
        code = add_file(build, i);
    if (code == 0)
        code = sort_all(build);
    if (code == 0 && entry_index_all(tree) < 0)
        code = wfs_fail_memory(build->err);
    for (uint32_t i = 0; i < n_values && code == 0; i++)
        code = add_value(build, i);
    if (code == 0 && n_values > 0)
        code = sort_all(build);
    return code == 0 && inodes_settle(tree) < 0 ? wfs_fail_memory(build->err) : code;
}

/* Fills a tree that has nothing but its root. */
static int build_tree(struct wfs_tree *tree, struct wfs_error *err)
{
    struct build *build = calloc(1, sizeof(*build));
    if (build == NULL)
        return wfs_fail_memory(err);
    build->tree = tree;
    build->err = err;
    const int code = add_all(build);
    map_done(&build->ties);
    arena_done(&build->arena);
    free(build);
    return code;
}

/* Returns the time of the newest source, for nodes without a time of their own. */
static struct timespec newest_mtime(const struct wfs_catalog *catalog)
{
    int64_t ns = 0;
    for (size_t i = 0; i < catalog->sources.n; i++) {
        const int64_t of_source = catalog->sources.list[i]->identity.mtime_ns;
        ns = of_source > ns ? of_source : ns;
    }
    return ns == 0 ? node_now()
                   : (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static int make(struct wfs_tree *tree, struct wfs_error *err)
{
    tree->root = node_new(tree, NODE_DIR, 1);
    if (tree->root == NULL || texts_new(&tree->texts) < 0 || digests_new(&tree->digests) < 0 ||
        valuefiles_new(tree->catalog, &tree->valuefiles) < 0)
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
    for (uint32_t id = 1; id <= tree->nodes.n_items; id++)
        ((struct wfs_node *)pool_at(&tree->nodes, id))->is_loaded = true;
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
    texts_free(tree->texts);
    valuefiles_free(tree->valuefiles);
    map_done(&tree->map);
    map_done(&tree->loaded);
    key_cuts_done(&tree->cuts);
    pool_done(&tree->entries);
    pool_done(&tree->nodes);
    arena_done(&tree->arena);
    free(tree);
}
