/* SPDX-License-Identifier: MIT */
/*
 * A walk through all directories but scratch ones, without recursion, then a sort. The index of
 * what was loaded is made with the first new file: renaming and removing do not need it.
 */
#include "tree/file/outline.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/tree.h>
#include <weightfs/value.h>
#include "tree/file/description.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct query {
    const struct wfs_tree *tree;
    const char *key;
    bool is_value;
};

/* Returns the key of the tensor, or the name of the value, with that order. */
static const char *namesake_key(const struct wfs_tree *tree, uint32_t order)
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

int namesake_index(struct wfs_tree *tree)
{
    const size_t n_tensors = wfs_catalog_n_tensors(tree->catalog);
    const uint32_t n = (uint32_t)(n_tensors + wfs_catalog_n_values(tree->catalog));
    if (tree->loaded.n_slots > 0 || n == 0)
        return 0;
    if (map_reserve(&tree->loaded, n) < 0)
        return -ENOMEM;
    for (uint32_t order = 0; order < n; order++) {
        /* A value without a file stays, whatever is created. */
        if ((order < n_tensors || valuefile_is_shown(tree, order - n_tensors)) &&
            map_add(&tree->loaded, hash_of(namesake_key(tree, order)), order) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Returns the order of the tensor or value that was loaded with the key, or ORDER_NEW. */
static uint32_t namesake_find(const struct wfs_tree *tree, const char *key, bool is_value)
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
        node->edit->version++;
    }
    return code == -ENOENT || code == -ENOKEY ? 0 : code;
}

/* Returns the length of the suffix, or 0. Numbered ones are `.~N~`. */
static size_t suffix_of(const char *name, size_t n_bytes)
{
    static const char *const words[] = {".bak", ".orig", ".rej", ".swp"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        const size_t n = strlen(words[i]);
        if (n_bytes > n && memcmp(name + n_bytes - n, words[i], n) == 0)
            return n;
    }
    if (n_bytes < 2 || name[n_bytes - 1] != '~')
        return 0;
    size_t at = n_bytes - 1;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
        at--;
    return at > 2 && at < n_bytes - 1 && name[at - 1] == '~' && name[at - 2] == '.'
               ? n_bytes - at + 2
               : 1;
}

/* Cuts a name down to the one that it is a backup copy of. Returns false when it is not one. */
static bool strip(const char **name, size_t *n_bytes)
{
    if (*n_bytes > 2 && (*name)[0] == '#' && (*name)[*n_bytes - 1] == '#') {
        *name += 1;
        *n_bytes -= 2;
        return true;
    }
    const size_t n_suffix = suffix_of(*name, *n_bytes);
    *n_bytes -= n_suffix;
    return n_suffix > 0;
}

/* Returns whether a file of a tensor or of a value can have the name. */
static bool gives_key(const char *name, size_t n_bytes)
{
    static const char *const suffixes[] = {"", KEY_NPY, VALUEFILE_SUFFIX};
    char part[KEY_NAME_MAX];
    size_t n_part;
    bool is_one = false;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes) && !is_one; i++) {
        const size_t n = strlen(suffixes[i]);
        is_one = n_bytes > n && memcmp(name + n_bytes - n, suffixes[i], n) == 0 &&
                 key_decode(name, n_bytes - n, part, &n_part) != KEY_IS_INVALID;
    }
    return is_one;
}

bool backup_is_only(const char *name)
{
    size_t n_bytes = strlen(name);
    if (gives_key(name, n_bytes))
        return false;
    while (strip(&name, &n_bytes))
        if (gives_key(name, n_bytes))
            return true;
    return false;
}

bool backup_is_name(const char *name)
{
    size_t n_bytes = strlen(name);
    return strip(&name, &n_bytes);
}

/* Returns true when the key that the entry was loaded with ends in the name that it has now. */
static bool has_loaded_name(const struct wfs_tree *tree, const struct entry *entry)
{
    char part[KEY_NAME_MAX];
    size_t n_part = 0;
    if (entry->order == ORDER_NEW ||
        key_decode(entry->name, strlen(entry->name), part, &n_part) != KEY_IS_PART)
        return false;
    const char *key = namesake_key(tree, entry->order);
    const size_t n_key = strlen(key);
    return n_key >= n_part && memcmp(key + n_key - n_part, part, n_part) == 0 &&
           (n_key == n_part || key[n_key - n_part - 1] == '.');
}

/* Returns true when the name leads to a file. */
static bool is_file(const struct wfs_tree *tree, const struct wfs_node *dir, const char *bytes,
                    size_t n_bytes)
{
    char name[KEY_NAME_MAX + 1];
    if (n_bytes > KEY_NAME_MAX)
        return false;
    memcpy(name, bytes, n_bytes);
    name[n_bytes] = '\0';
    const uint32_t id = entry_find(tree, dir, name);
    return id != 0 && entry_at(tree, id)->node->kind != NODE_DIR;
}

/*
 * Returns true when the file is a backup copy of a file in the same directory. A tensor or value
 * that was loaded with such a name is not. key is the one of the file, or NULL.
 */
static bool backup_is_one(const struct wfs_tree *tree, uint32_t id, const char *key, bool is_value)
{
    const struct entry *entry = entry_at(tree, id);
    const char *name = entry->name;
    size_t n_bytes = strlen(name);
    if (key == NULL && backup_is_only(name))
        return true;
    if (!backup_is_name(name) || has_loaded_name(tree, entry) ||
        (key != NULL && namesake_find(tree, key, is_value) != ORDER_NEW))
        return false;
    while (strip(&name, &n_bytes))
        if (name[0] != '.' && is_file(tree, entry->dir, name, n_bytes))
            return true;
    return false;
}

/* The directories that are still to be walked. */
struct todo {
    const struct wfs_node **dirs;
    size_t n_dirs, n_room;
};

static int add_todo(struct todo *todo, const struct wfs_node *dir)
{
    if (array_reserve(&todo->dirs, sizeof(*todo->dirs), todo->n_dirs, 1, &todo->n_room) < 0)
        return -ENOMEM;
    todo->dirs[todo->n_dirs++] = dir;
    return 0;
}

static int add_item(const struct wfs_tree *tree, uint32_t id, struct outline *outline)
{
    if (array_reserve(&outline->items, sizeof(*outline->items), outline->n_items, 1,
                      &outline->n_room) < 0)
        return -ENOMEM;
    outline->items[outline->n_items++] =
        (struct outline_item){.order = entry_at(tree, id)->order, .entry = id};
    return 0;
}

/* Adds the files of a directory to the outlines (NULL: left out), its directories to the todo. */
static int look_into(const struct wfs_tree *tree, const struct directory *directory,
                     struct todo *todo, struct outline *tensors, struct outline *values)
{
    int code = 0;
    for (uint32_t i = 0; i < directory->n_ids && code == 0; i++) {
        const struct entry *entry = entry_at(tree, directory->ids[i]);
        if (entry->node == NULL || entry->name[0] == '.')
            continue;
        struct outline *outline = valuefile_is_one(entry) ? values : tensors;
        if (entry->node->kind == NODE_DIR)
            code = add_todo(todo, entry->node);
        else if (outline != NULL)
            code = add_item(tree, directory->ids[i], outline);
    }
    return code;
}

static int walk(const struct wfs_tree *tree, struct outline *tensors, struct outline *values)
{
    struct todo todo = {0};
    int code = add_todo(&todo, tree->root);
    while (code == 0 && todo.n_dirs > 0)
        code = look_into(tree, todo.dirs[--todo.n_dirs]->directory, &todo, tensors, values);
    free(todo.dirs);
    return code;
}

static int find_key(const struct wfs_tree *tree, struct strbuf *key, struct arena *arena,
                    struct outline_item *item)
{
    const struct wfs_node *node = entry_at(tree, item->entry)->node;
    key->n_bytes = 0;
    const int hides_suffix = description_hides_suffix(tree, node, item->entry);
    const int code =
        hides_suffix < 0 ? hides_suffix : entry_key(tree, item->entry, hides_suffix > 0, key);
    if (code == -ENOKEY)
        return 0;
    if (code < 0)
        return code;
    if (item->order < wfs_catalog_n_tensors(tree->catalog)) {
        item->key = wfs_catalog_tensor(tree->catalog, item->order)->key;
        if (strcmp(item->key, key->bytes) == 0)
            return 0;
    }
    item->key = arena_copy(arena, key->bytes, key->n_bytes);
    return item->key == NULL ? -ENOMEM : 0;
}

/* ---- backup copies ---- */

/* Moves backup copies from the items to the list of what is left out. */
static int set_backups_aside(const struct wfs_tree *tree, bool is_value, struct outline *outline)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < outline->n_items; i++) {
        const struct outline_item item = outline->items[i];
        if (!backup_is_one(tree, item.entry, item.key, is_value)) {
            outline->items[n_kept++] = item;
            continue;
        }
        if (array_reserve(&outline->backups, sizeof(*outline->backups), outline->n_backups, 1,
                          &outline->n_backup_room) < 0)
            return -ENOMEM;
        outline->backups[outline->n_backups++] = item.entry;
    }
    outline->n_items = n_kept;
    return 0;
}

/* ---- places ---- */

/* A file that was removed and created again gets its old place, unless another file has that now.
 */
static int give_back_places(const struct wfs_tree *tree, bool is_value, struct outline *outline)
{
    const size_t n = wfs_catalog_n_tensors(tree->catalog) + wfs_catalog_n_values(tree->catalog);
    autofree bool *is_taken = tree->loaded.n_slots == 0 ? NULL : calloc(n + 1, sizeof(bool));
    if (is_taken == NULL)
        return tree->loaded.n_slots == 0 ? 0 : -ENOMEM;
    for (size_t i = 0; i < outline->n_items; i++) {
        const struct outline_item *item = &outline->items[i];
        const size_t value = valuefile_origin(tree, item->entry, item->order);
        if (item->order != ORDER_NEW)
            is_taken[item->order] = true;
        /* A file of a value that was moved over another one still takes its own place, too. */
        if (value != SIZE_MAX)
            is_taken[wfs_catalog_n_tensors(tree->catalog) + value] = true;
    }
    for (size_t i = 0; i < outline->n_items; i++) {
        struct outline_item *item = &outline->items[i];
        const uint32_t order = item->order != ORDER_NEW || item->key == NULL
                                   ? ORDER_NEW
                                   : namesake_find(tree, item->key, is_value);
        if (order == ORDER_NEW || is_taken[order])
            continue;
        item->order = order;
        item->key = namesake_key(tree, order);
        is_taken[order] = true;
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    const struct outline_item *one = a, *other = b;
    if (one->order != other->order)
        return one->order < other->order ? -1 : 1;
    if (one->key == NULL || other->key == NULL)
        return (one->key != NULL) - (other->key != NULL);
    return strcmp(one->key, other->key);
}

static int finish(const struct wfs_tree *tree, bool is_value, struct outline *outline)
{
    int code = set_backups_aside(tree, is_value, outline);
    if (code == 0)
        code = give_back_places(tree, is_value, outline);
    if (code == 0 && outline->n_items > 0)
        qsort(outline->items, outline->n_items, sizeof(*outline->items), compare);
    return code;
}

int outline_make(const struct wfs_tree *tree, struct arena *arena, struct outline *ret_tensors,
                 struct outline *ret_values)
{
    autostrbuf struct strbuf key = {0};
    int code = walk(tree, ret_tensors, ret_values);
    for (size_t i = 0; i < ret_tensors->n_items && code == 0; i++)
        code = find_key(tree, &key, arena, &ret_tensors->items[i]);
    if (code == 0)
        code = finish(tree, false, ret_tensors);
    for (size_t i = 0; ret_values != NULL && i < ret_values->n_items && code == 0; i++) {
        struct outline_item *item = &ret_values->items[i];
        code = valuefile_name(tree, item->entry, arena, &item->key);
    }
    return code == 0 && ret_values != NULL ? finish(tree, true, ret_values) : code;
}

void outline_done(struct outline *outline)
{
    free(outline->items);
    free(outline->backups);
    *outline = (struct outline){0};
}

int wfs_tree_each(const struct wfs_tree *tree,
                  int (*visit)(void *ctx, const struct wfs_tree_file *file), void *ctx)
{
    cleanup(arena_done) struct arena arena = {0};
    cleanup(outline_done) struct outline tensors = {0};
    cleanup(outline_done) struct outline values = {0};
    autostrbuf struct strbuf path = {0};
    int code = outline_make(tree, &arena, &tensors, &values);
    for (size_t i = 0; i < tensors.n_items + values.n_items && code == 0; i++) {
        const bool is_value = i >= tensors.n_items;
        const struct outline_item *item =
            is_value ? &values.items[i - tensors.n_items] : &tensors.items[i];
        path.n_bytes = 0;
        entry_path(tree, item->entry, &path);
        if (path.has_failed)
            return -ENOMEM;
        const struct wfs_tree_file file = {item->key, path.bytes, entry_at(tree, item->entry)->node,
                                           is_value};
        code = visit(ctx, &file);
    }
    return code;
}
