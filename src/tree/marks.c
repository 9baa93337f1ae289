/* SPDX-License-Identifier: MIT */
/*
 * A name now and the name that it was loaded with are taken back together, and a directory with all
 * that is in it and was in it. So is a name that another file of the catalog has now.
 */
#include "tree/marks.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tree/node/entry.h"

/* An entry whose relations are still to be marked. */
struct mark {
    uint32_t id;
    bool is_before; /* of the pristine tree */
};

static int mark(struct marks *marks, bool is_before, uint32_t id)
{
    bool *is_marked = is_before ? &marks->before[id] : &marks->now[id];
    if (id == 0 || *is_marked)
        return 0;
    if (array_reserve(&marks->todo, sizeof(*marks->todo), marks->n_todo, 1, &marks->n_todo_room) <
        0)
        return -ENOMEM;
    *is_marked = true;
    marks->todo[marks->n_todo++] = (struct mark){id, is_before};
    return 0;
}

static int mark_content(struct marks *marks, bool is_before, const struct wfs_node *dir)
{
    const struct wfs_tree *tree = is_before ? marks->changes->loaded : marks->changes->tree;
    const struct directory *directory = dir->directory;
    int code = 0;
    for (uint32_t i = 0; i < directory->n_ids && code == 0; i++) {
        const struct wfs_node *node = entry_at(tree, directory->ids[i])->node;
        if (node != NULL && !node_is_fixed(node) && node != tree->out)
            code = mark(marks, is_before, directory->ids[i]);
    }
    return code;
}

/* The control directory is not listed in the root. */
static int mark_all(struct marks *marks)
{
    const struct wfs_tree *trees[] = {marks->changes->tree, marks->changes->loaded};
    int code = 0;
    for (int i = 0; i < 2 && code == 0; i++) {
        code = mark_content(marks, i == 1, trees[i]->root);
        if (code == 0)
            code = mark_content(marks, i == 1, trees[i]->control);
    }
    return code;
}

/* The file may have been loaded with names that it has no more: it comes back to them. */
static int mark_lost_names(struct marks *marks, const struct wfs_node *was)
{
    int code = 0;
    for (uint32_t id = was->entry; id != 0 && code == 0;
         id = entry_at(marks->changes->loaded, id)->next) {
        if (marks->changes->current[id] == 0)
            code = mark(marks, true, id);
    }
    return code;
}

static int relate_now(struct marks *marks, uint32_t id)
{
    const struct changes *changes = marks->changes;
    const struct wfs_node *node = entry_at(changes->tree, id)->node;
    const struct wfs_node *was = changes_before(changes, node);
    const uint32_t origin = changes->origin[id];
    int code = mark(marks, true, origin);
    if (code == 0 && node->kind == NODE_DIR && node != changes->tree->control)
        code = mark_content(marks, false, node);
    if (code == 0 && was != NULL && was->kind != NODE_DIR &&
        (origin == 0 || entry_at(changes->loaded, origin)->node != was))
        code = mark_lost_names(marks, was);
    return code;
}

/* Names that other files of the catalog were loaded with, and that this one has now. */
static int mark_taken_names(struct marks *marks, const struct wfs_node *was,
                            const struct wfs_node *now)
{
    const struct changes *changes = marks->changes;
    int code = 0;
    for (uint32_t id = now->entry; id != 0 && code == 0; id = entry_at(changes->tree, id)->next) {
        const uint32_t origin = changes->origin[id];
        if (origin != 0 && entry_at(changes->loaded, origin)->node != was)
            code = mark(marks, false, id);
    }
    return code;
}

static int relate_before(struct marks *marks, uint32_t id)
{
    const struct changes *changes = marks->changes;
    const struct wfs_node *was = entry_at(changes->loaded, id)->node;
    const struct wfs_node *now = changes->now[was->id];
    int code = mark(marks, false, changes->current[id]);
    if (code == 0 && was->kind == NODE_DIR)
        code = mark_content(marks, true, was);
    if (code == 0 && was->kind != NODE_DIR && now != NULL)
        code = mark_taken_names(marks, was, now);
    return code;
}

/* ---- paths ---- */

/* Returns the entry at the path of n bytes, or 0. */
static uint32_t resolve(const struct wfs_tree *tree, const char *path, size_t n)
{
    const struct wfs_node *dir = tree->root;
    const char *end = path + n;
    uint32_t id = 0;
    char name[KEY_NAME_MAX + 1];
    for (; path < end; path++) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        const size_t n_name = (size_t)((slash == NULL ? end : slash) - path);
        if (n_name > KEY_NAME_MAX || dir->kind != NODE_DIR)
            return 0;
        memcpy(name, path, n_name);
        name[n_name] = '\0';
        id = entry_find(tree, dir, name);
        if (id == 0)
            return 0;
        dir = entry_at(tree, id)->node;
        path += n_name;
    }
    return id;
}

static int mark_path(struct marks *marks, const char *path, size_t n, struct wfs_error *err)
{
    const struct changes *changes = marks->changes;
    const uint32_t now = resolve(changes->tree, path, n);
    const uint32_t before = resolve(changes->loaded, path, n);
    const struct wfs_node *node = now == 0 ? NULL : entry_at(changes->tree, now)->node;
    if (now == 0 && before == 0)
        return wfs_fail(err, ENOENT, "'%s' is neither in the mount nor in its source",
                        wfs_quote_n(path, n).text);
    if (node != NULL &&
        (node_is_fixed(node) || node == changes->tree->out || node == changes->tree->control))
        return wfs_fail(err, EINVAL, "'%s' cannot have edits", wfs_quote_n(path, n).text);
    const int code = mark(marks, false, now);
    return code < 0 || mark(marks, true, before) < 0 ? wfs_fail_memory(err) : 0;
}

int marks_make(const struct changes *changes, const char *paths, struct marks *ret,
               struct wfs_error *err)
{
    *ret = (struct marks){.changes = changes,
                          .now = calloc(changes->n_entries + 1u, sizeof(bool)),
                          .before = calloc(changes->loaded->entries.n_items + 1u, sizeof(bool))};
    int code = ret->now == NULL || ret->before == NULL ? -ENOMEM : 0;
    if (code == 0 && *paths == '\0')
        code = mark_all(ret);
    for (const char *end; code == 0 && *paths != '\0'; paths = *end == '\0' ? end : end + 2) {
        end = strstr(paths, "//");
        end = end == NULL ? paths + strlen(paths) : end;
        code = mark_path(ret, paths, (size_t)(end - paths), err);
    }
    while (code == 0 && ret->n_todo > 0) {
        const struct mark next = ret->todo[--ret->n_todo];
        code = next.is_before ? relate_before(ret, next.id) : relate_now(ret, next.id);
    }
    return code == -ENOMEM ? wfs_fail_memory(err) : code;
}

void marks_done(struct marks *marks)
{
    free(marks->now);
    free(marks->before);
    free(marks->todo);
    *marks = (struct marks){0};
}
