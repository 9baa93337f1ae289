/* SPDX-License-Identifier: MIT */
/*
 * A walk through all directories but scratch ones, without recursion, then a sort.
 */
#include "tree/file/outline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <weightfs/array.h>
#include <weightfs/value.h>

#include "tree/file/backup.h"
#include "tree/file/description.h"
#include "tree/file/namesake.h"
#include "tree/file/valuefile.h"
#include "tree/node/entry.h"

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

static bool is_taken(const uint8_t *taken, uint32_t order)
{
    return (taken[order / 8] >> order % 8 & 1) != 0;
}

static void take(uint8_t *taken, uint32_t order)
{
    taken[order / 8] |= (uint8_t)(1u << order % 8);
}

/* A file of a value that was moved over another one still takes its own place, too. */
static void take_places(const struct wfs_tree *tree, const struct outline_item *item,
                        uint8_t *taken)
{
    const size_t value = valuefile_origin(tree, item->entry, item->order);
    if (item->order != ORDER_NEW)
        take(taken, item->order);
    if (value != SIZE_MAX)
        take(taken, (uint32_t)(wfs_catalog_n_tensors(tree->catalog) + value));
}

/* A file that was removed and created again gets its old place, unless another file has that now.
 */
static int give_back_places(const struct wfs_tree *tree, bool is_value, struct outline *outline)
{
    const size_t n = wfs_catalog_n_tensors(tree->catalog) + wfs_catalog_n_values(tree->catalog);
    autofree uint8_t *taken = tree->loaded.n_slots == 0 ? NULL : calloc(n / 8 + 1, 1);
    if (taken == NULL)
        return tree->loaded.n_slots == 0 ? 0 : -ENOMEM;
    for (size_t i = 0; i < outline->n_items; i++)
        take_places(tree, &outline->items[i], taken);
    for (size_t i = 0; i < outline->n_items; i++) {
        struct outline_item *item = &outline->items[i];
        const uint32_t order = item->order != ORDER_NEW || item->key == NULL
                                   ? ORDER_NEW
                                   : namesake_find(tree, item->key, is_value);
        if (order == ORDER_NEW || is_taken(taken, order))
            continue;
        item->order = order;
        item->key = namesake_key(tree, order);
        take(taken, order);
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
