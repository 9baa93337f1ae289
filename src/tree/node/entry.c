/* SPDX-License-Identifier: MIT */
/*
 * A directory keeps the numbers of its entries in the order of their sequence numbers; one hash map
 * holds the entries of all directories. The names on the way from the root to an entry spell a
 * path, or a key.
 */
#include "tree/node/entry.h"

#include <weightfs/array.h>
#include <weightfs/strbuf.h>
#include "base/bytes.h"
#include "tree/node/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct query {
    const struct wfs_tree *tree;
    const struct wfs_node *dir;
    const char *name;
};

static uint64_t name_hash(const struct wfs_node *dir, const char *name)
{
    return hash_bytes(name, strlen(name), hash_seed() + dir->id);
}

static bool is_match(const void *ctx, uint32_t id)
{
    const struct query *query = ctx;
    const struct entry *entry = entry_at(query->tree, id);
    return entry->dir == query->dir && strcmp(entry->name, query->name) == 0;
}

uint32_t entry_find(const struct wfs_tree *tree, const struct wfs_node *dir, const char *name)
{
    const struct query query = {tree, dir, name};
    uint32_t id;
    return map_find(&tree->map, name_hash(dir, name), is_match, &query, &id) ? id : 0;
}

static void link_node(struct wfs_tree *tree, uint32_t id, struct wfs_node *node)
{
    struct entry *entry = entry_at(tree, id);
    entry->node = node;
    entry->previous = 0;
    entry->next = node->entry;
    if (node->entry != 0)
        entry_at(tree, node->entry)->previous = id;
    node->entry = id;
    if (node->kind == NODE_DIR)
        entry->dir->n_links++;
    else
        node->n_links++;
}

static void unlink_node(struct wfs_tree *tree, struct entry *entry)
{
    struct wfs_node *node = entry->node;
    if (entry->previous != 0)
        entry_at(tree, entry->previous)->next = entry->next;
    else
        node->entry = entry->next;
    if (entry->next != 0)
        entry_at(tree, entry->next)->previous = entry->previous;
    if (node->kind == NODE_DIR)
        entry->dir->n_links--;
    else
        node->n_links--;
}

void entry_relink(struct wfs_tree *tree, uint32_t id, struct wfs_node *node)
{
    unlink_node(tree, entry_at(tree, id));
    link_node(tree, id, node);
}

/* Makes an entry without a node, at the end of the directory, or hidden. 0: no memory. */
static uint32_t make_entry(struct wfs_tree *tree, struct wfs_node *dir, const char *name,
                           bool is_listed)
{
    struct directory *directory = dir->directory;
    if (array_reserve(&directory->ids, sizeof(*directory->ids), directory->n_ids, 1,
                      &directory->n_room) < 0)
        return 0;
    const uint32_t id = pool_take(&tree->entries);
    if (id == 0)
        return 0;
    *entry_at(tree, id) = (struct entry){
        .dir = dir, .name = name, .sequence = tree->sequence + 1, .order = ORDER_NEW};
    directory->ids[directory->n_ids] = id;
    directory->n_ids += is_listed;
    tree->sequence++;
    return id;
}

int entry_add(struct wfs_tree *tree, struct wfs_node *dir, const char *name, enum entry_name how,
              struct wfs_node *node, bool is_listed, uint32_t *ret_id)
{
    char *copy = how == NAME_COPIED ? strdup(name) : NULL;
    if ((how == NAME_COPIED && copy == NULL) || map_reserve(&tree->map, tree->map.n_used + 1) < 0) {
        free(copy);
        return -ENOMEM;
    }
    const uint32_t id = make_entry(tree, dir, copy != NULL ? copy : name, is_listed);
    if (id == 0 || map_add(&tree->map, name_hash(dir, name), id) < 0) {
        free(copy);
        return -ENOMEM;
    }
    entry_at(tree, id)->owns_name = copy != NULL;
    entry_at(tree, id)->is_indexed = true;
    link_node(tree, id, node);
    *ret_id = id;
    return 0;
}

int entry_append(struct wfs_tree *tree, struct wfs_node *dir, const char *name,
                 struct wfs_node *node, uint32_t order)
{
    const uint32_t id = make_entry(tree, dir, name, true);
    if (id == 0)
        return -ENOMEM;
    entry_at(tree, id)->order = order;
    link_node(tree, id, node);
    return 0;
}

int entry_index_all(struct wfs_tree *tree)
{
    enum { N_AHEAD = 32 };
    const uint32_t n = tree->entries.n_items;
    uint64_t hashes[N_AHEAD];
    if (map_reserve(&tree->map, n) < 0)
        return -ENOMEM;
    for (uint32_t id = 1; id <= n + N_AHEAD; id++) {
        uint64_t *hash = &hashes[id % N_AHEAD];
        struct entry *entry = id <= N_AHEAD ? NULL : entry_at(tree, id - N_AHEAD);
        if (entry != NULL && !entry->is_indexed) {
            if (map_add(&tree->map, *hash, id - N_AHEAD) < 0)
                return -ENOMEM;
            entry->is_indexed = true;
        }
        if (id <= n) {
            *hash = name_hash(entry_at(tree, id)->dir, entry_at(tree, id)->name);
            map_prefetch(&tree->map, *hash);
        }
    }
    return 0;
}

/* Holes are removed when they outnumber the rest, so each removal pays for one step of this. */
static void close_holes(struct wfs_tree *tree, struct directory *directory)
{
    if (directory->n_holes <= 16 || directory->n_holes <= directory->n_ids / 2)
        return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < directory->n_ids; i++) {
        const uint32_t id = directory->ids[i];
        if (entry_at(tree, id)->node == NULL)
            pool_give(&tree->entries, id);
        else
            directory->ids[n++] = id;
    }
    directory->n_ids = n;
    directory->n_holes = 0;
}

void entry_remove(struct wfs_tree *tree, uint32_t id)
{
    struct entry *entry = entry_at(tree, id);
    map_remove(&tree->map, name_hash(entry->dir, entry->name), id);
    unlink_node(tree, entry);
    if (entry->owns_name)
        free((char *)(uintptr_t)entry->name);
    entry->name = NULL;
    entry->owns_name = false;
    entry->node = NULL;
    entry->dir->directory->n_holes++;
    close_holes(tree, entry->dir->directory);
}

bool entry_has_any(const struct wfs_node *dir)
{
    return dir->directory->n_ids > dir->directory->n_holes;
}

static int compare_names(const void *a, const void *b, void *ctx)
{
    const struct wfs_tree *tree = ctx;
    return strcmp(entry_at(tree, *(const uint32_t *)a)->name,
                  entry_at(tree, *(const uint32_t *)b)->name);
}

uint32_t entry_sort(struct wfs_tree *tree, struct wfs_node *dir)
{
    struct directory *directory = dir->directory;
    bool is_sorted = true;
    for (uint32_t i = 1; i < directory->n_ids && is_sorted; i++)
        is_sorted = compare_names(&directory->ids[i - 1], &directory->ids[i], tree) < 0;
    if (is_sorted)
        return 0;
    qsort_r(directory->ids, directory->n_ids, sizeof(*directory->ids), compare_names, tree);
    uint32_t twin = 0;
    for (uint32_t i = 0; i < directory->n_ids; i++) {
        entry_at(tree, directory->ids[i])->sequence = ++tree->sequence;
        if (i > 0 && compare_names(&directory->ids[i - 1], &directory->ids[i], tree) == 0)
            twin = i;
    }
    return twin;
}

struct wfs_node *entry_metadata(const struct wfs_tree *tree)
{
    const uint32_t id = entry_find(tree, tree->control, ENTRY_METADATA);
    return id == 0 ? NULL : entry_at(tree, id)->node;
}

int wfs_node_lookup(const struct wfs_tree *tree, const struct wfs_node *dir, const char *name,
                    struct wfs_node **ret)
{
    if (dir->kind != NODE_DIR)
        return -ENOTDIR;
    if (strnlen(name, KEY_NAME_MAX + 1) > KEY_NAME_MAX)
        return -ENAMETOOLONG;
    const uint32_t id = entry_find(tree, dir, name);
    if (id == 0)
        return -ENOENT;
    *ret = entry_at(tree, id)->node;
    return 0;
}

/* Returns the first place after the sequence number. */
static uint32_t find_place(const struct wfs_tree *tree, const struct directory *directory,
                           uint64_t sequence)
{
    const uint32_t hint = atomic_load_explicit(&directory->hint, memory_order_relaxed);
    if (hint < directory->n_ids && entry_at(tree, directory->ids[hint])->sequence == sequence)
        return hint + 1;
    uint32_t low = 0, high = directory->n_ids;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (entry_at(tree, directory->ids[middle])->sequence <= sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int wfs_dir_next(const struct wfs_tree *tree, const struct wfs_node *dir, uint64_t *cookie,
                 struct wfs_dirent *ret)
{
    if (dir->kind != NODE_DIR)
        return -ENOTDIR;
    struct directory *directory = dir->directory;
    uint32_t i = *cookie == 0 ? 0 : find_place(tree, directory, *cookie);
    while (i < directory->n_ids && entry_at(tree, directory->ids[i])->node == NULL)
        i++;
    if (i >= directory->n_ids)
        return 0;
    const struct entry *entry = entry_at(tree, directory->ids[i]);
    atomic_store_explicit(&directory->hint, i, memory_order_relaxed);
    *cookie = entry->sequence;
    *ret = (struct wfs_dirent){entry->name, entry->node};
    return 1;
}

/* The entries from the root's down; long ways are on the heap. */
struct way {
    const struct entry *few[64];
    const struct entry **entries;
    size_t n_entries;
};

static bool find_way(const struct wfs_tree *tree, uint32_t id, struct way *way)
{
    size_t n = 0;
    for (uint32_t at = id; at != 0; at = entry_at(tree, at)->dir->entry)
        n++;
    way->n_entries = n;
    way->entries = way->few;
    if (n > sizeof(way->few) / sizeof(*way->few))
        way->entries = calloc(n, sizeof(*way->entries));
    if (way->entries == NULL)
        return false;
    for (uint32_t at = id; at != 0; at = entry_at(tree, at)->dir->entry)
        way->entries[--n] = entry_at(tree, at);
    return true;
}

static void way_done(struct way *way)
{
    if (way->entries != way->few)
        free(way->entries);
}

void entry_path(const struct wfs_tree *tree, uint32_t id, struct strbuf *text)
{
    struct way way;
    if (!find_way(tree, id, &way)) {
        text->has_failed = true;
        return;
    }
    for (size_t i = 0; i < way.n_entries; i++) {
        if (i > 0)
            strbuf_add(text, "/", 1);
        strbuf_puts(text, way.entries[i]->name);
    }
    way_done(&way);
}

struct wfs_quoted entry_quoted(const struct wfs_tree *tree, uint32_t id)
{
    autostrbuf struct strbuf path = {0};
    entry_path(tree, id, &path);
    return path.bytes == NULL ? wfs_quote("?") : wfs_quote_n(path.bytes, path.n_bytes);
}

bool entry_is_scratch(const struct wfs_tree *tree, uint32_t id)
{
    for (uint32_t at = id; at != 0; at = entry_at(tree, at)->dir->entry) {
        if (entry_at(tree, at)->name[0] == '.')
            return true;
    }
    return false;
}

bool entry_has_suffix(const struct wfs_tree *tree, uint32_t id)
{
    return text_ends(entry_at(tree, id)->name, KEY_NPY);
}

/* Adds what the name stands for; a %self adds nothing. */
static int add_part(const struct wfs_tree *tree, const char *name, size_t n_bytes, bool is_first,
                    struct strbuf *text)
{
    char part[KEY_NAME_MAX];
    size_t n_part = 0;
    if (memchr(name, '%', n_bytes) == NULL) {
        if (name[0] == '.')
            return -ENOENT;
        if (!is_first)
            strbuf_add(text, ".", 1);
        strbuf_add(text, name, n_bytes);
        return 0;
    }
    const enum key_kind kind = key_decode(name, n_bytes, part, &n_part);
    if (kind == KEY_IS_SELF)
        return 0;
    const char *cut = kind == KEY_IS_CUT ? key_cuts_find(&tree->cuts, name, n_bytes) : NULL;
    if (kind != KEY_IS_PART && cut == NULL)
        return kind == KEY_IS_SCRATCH ? -ENOENT : -ENOKEY;
    if (!is_first)
        strbuf_add(text, ".", 1);
    if (cut != NULL)
        strbuf_puts(text, cut);
    else
        strbuf_add(text, part, n_part);
    return 0;
}

int entry_key_without(const struct wfs_tree *tree, uint32_t id, size_t n_suffix,
                      struct strbuf *text)
{
    struct way way;
    if (!find_way(tree, id, &way))
        return -ENOMEM;
    int code = 0;
    for (size_t i = 0; i < way.n_entries && code == 0; i++) {
        const char *name = way.entries[i]->name;
        const bool is_last = i + 1 == way.n_entries;
        code = add_part(tree, name, strlen(name) - (is_last ? n_suffix : 0), i == 0, text);
    }
    way_done(&way);
    if (code == 0)
        strbuf_add(text, "", 0);
    return code < 0 ? code : text->has_failed ? -ENOMEM : 0;
}

int entry_key(const struct wfs_tree *tree, uint32_t id, bool has_suffix, struct strbuf *text)
{
    return entry_key_without(tree, id, has_suffix ? strlen(KEY_NPY) : 0, text);
}
