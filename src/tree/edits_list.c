/* SPDX-License-Identifier: MIT */
/*
 * The list of edits: how the names and files of a tree differ from its catalog.
 */
#include <weightfs/tree.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/shape.h"
#include "tree/changes.h"
#include "tree/file/description.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"

/* What a file is, in the source or now. */
struct form {
    bool is_there, has_dtype, has_shape;
    uint8_t dtype;
    struct wfs_shape shape;
    uint64_t n_bytes;
};

struct list {
    struct changes changes;
    struct arena arena;
    struct strbuf text;
    bool is_json;
    bool *is_listed; /* by entry of the tree: it takes the place of one that is gone */
    uint64_t n;
};

/* ---- forms ---- */

static struct form form_before(const struct list *list, uint32_t id)
{
    const struct wfs_tree *loaded = list->changes.loaded;
    const struct entry *entry = entry_at(loaded, id);
    struct form form = {.is_there = true};
    if (entry->node->kind == NODE_FILE) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(loaded->catalog, entry->order);
        form = (struct form){true, true, true, tensor->dtype, tensor->shape, tensor->n_bytes};
    } else if (entry->node->kind == NODE_VALUE &&
               valuefile_n_bytes(loaded, entry->node, &form.n_bytes) < 0) {
        form.is_there = false;
    } else if (entry->node->kind == NODE_METADATA) {
        form.is_there = false; /* its text is made when it is read */
    }
    return form;
}

/* Whatever is not known yet is left out. */
static int form_now(struct list *list, uint32_t id, struct form *ret)
{
    const struct wfs_tree *tree = list->changes.tree;
    const struct entry *entry = entry_at(tree, id);
    struct description description;
    *ret = (struct form){.is_there = true, .n_bytes = edit_n_bytes(entry->node)};
    if (entry->node->kind != NODE_FILE || valuefile_is_one(entry) ||
        (entry->node->edit != NULL && entry->node->edit->is_lost))
        return 0;
    const int code = sibling_describe(tree, entry->node, id, &list->arena, &description, NULL);
    if (code < 0)
        return description_is_of_header(code) ? 0 : code;
    *ret = (struct form){true,
                         description.has_dtype,
                         description.has_shape,
                         description.dtype,
                         description.shape,
                         description.n_bytes};
    return 0;
}

static bool is_alike(const struct form *a, const struct form *b)
{
    return a->has_dtype == b->has_dtype && a->has_shape == b->has_shape &&
           (!a->has_dtype || a->dtype == b->dtype) &&
           (!a->has_shape || wfs_shape_is_equal(&a->shape, &b->shape)) && a->n_bytes == b->n_bytes;
}

/* ---- one edit ---- */

static void put_form(struct strbuf *text, const struct form *form)
{
    if (form->has_dtype)
        strbuf_printf(text, "%s ", wfs_dtype_name((enum wfs_dtype)form->dtype));
    if (form->has_shape) {
        shape_print(text, &form->shape);
        strbuf_puts(text, ", ");
    }
    strbuf_puts(text, wfs_count(form->n_bytes, "byte").text);
}

static void put_form_json(struct strbuf *text, const char *name, const struct form *form)
{
    if (!form->is_there)
        return;
    strbuf_printf(text, ", \"%s\": {", name);
    if (form->has_dtype)
        strbuf_printf(text, "\"dtype\": \"%s\", ", wfs_dtype_name((enum wfs_dtype)form->dtype));
    if (form->has_shape) {
        strbuf_puts(text, "\"shape\": ");
        shape_print(text, &form->shape);
        strbuf_puts(text, ", ");
    }
    strbuf_printf(text, "\"bytes\": %" PRIu64 "}", form->n_bytes);
}

/* What is not a tensor has no form before. */
static void put_forms(struct strbuf *text, const struct form *before, const struct form *now)
{
    const bool has_both = before->is_there && now->is_there && !is_alike(before, now);
    if (!before->is_there && !now->is_there)
        return;
    strbuf_puts(text, ": ");
    put_form(text, before->is_there ? before : now);
    if (has_both) {
        strbuf_puts(text, " -> ");
        put_form(text, now);
    }
}

static void put_attributes(struct list *list, const struct edit *edit)
{
    size_t n = 0;
    for (size_t i = 0; edit != NULL && i < TENSOR_N_TEXTS; i++) {
        if (edit->texts[i] == NULL)
            continue;
        strbuf_puts(&list->text, n++ == 0 ? (list->is_json ? ", \"attributes\": [" : "; ") : ", ");
        if (list->is_json)
            strbuf_json(&list->text, tensor_text_names[i]);
        else
            strbuf_puts(&list->text, tensor_text_names[i]);
    }
    strbuf_puts(&list->text, n == 0 ? "" : list->is_json ? "]" : " set");
}

/* other is the path before, or of the file that is linked; NULL: none. */
static void put(struct list *list, const char *change, const char *path, const char *other,
                const struct form *before, const struct form *now, const struct edit *edit)
{
    struct strbuf *text = &list->text;
    const bool is_link = strcmp(change, "linked") == 0;
    if (list->is_json) {
        strbuf_printf(text, "%s\n  {\"change\": \"%s\", \"path\": ", list->n > 0 ? "," : "",
                      change);
        strbuf_json(text, path);
        if (other != NULL) {
            strbuf_puts(text, is_link ? ", \"to\": " : ", \"from\": ");
            strbuf_json(text, other);
        }
        put_form_json(text, "before", before);
        put_form_json(text, "after", now);
        put_attributes(list, edit);
        strbuf_puts(text, "}");
    } else {
        strbuf_printf(text, "%-8s  %s", change, is_link || other == NULL ? path : other);
        if (other != NULL)
            strbuf_printf(text, " -> %s", is_link ? other : path);
        put_forms(text, before, now);
        put_attributes(list, edit);
        strbuf_puts(text, "\n");
    }
    list->n++;
}

static const struct form none;

/* ---- names of the catalog ---- */

/* Returns what was made in the place of a name that is gone, or 0. */
static uint32_t find_heir(const struct list *list, uint32_t id)
{
    const struct changes *changes = &list->changes;
    const struct entry *was = entry_at(changes->loaded, id);
    const struct wfs_node *dir = changes->now[was->dir->id];
    const uint32_t heir = dir == NULL ? 0 : entry_find(changes->tree, dir, was->name);
    return heir != 0 && changes->origin[heir] == 0 &&
                   entry_at(changes->tree, heir)->node->kind != NODE_DIR
               ? heir
               : 0;
}

/* A file with several names is listed by the first of them that it still has. */
static bool is_first_name(const struct changes *changes, uint32_t id)
{
    const struct entry *was = entry_at(changes->loaded, id);
    const struct wfs_node *now = changes->now[was->node->id];
    uint32_t first = 0;
    for (uint32_t at = was->node->entry; at != 0; at = entry_at(changes->loaded, at)->next) {
        const uint32_t current = changes->current[at];
        if (current != 0 && entry_at(changes->tree, current)->node == now)
            first = at;
    }
    return first == id;
}

static int put_changed(struct list *list, uint32_t id, uint32_t now, const char *path)
{
    const struct form before = form_before(list, id);
    struct form form;
    const int code = form_now(list, now, &form);
    if (code == 0)
        put(list, "changed", path, NULL, &before, &form,
            entry_at(list->changes.tree, now)->node->edit);
    return code;
}

static int look_at(struct list *list, uint32_t id)
{
    const struct changes *changes = &list->changes;
    const struct entry *was = entry_at(changes->loaded, id);
    const uint32_t current = changes->current[id];
    const uint32_t now = current != 0 ? current : find_heir(list, id);
    const bool is_dir = was->node->kind == NODE_DIR;
    autostrbuf struct strbuf before = {0}, path = {0};
    entry_path(changes->loaded, id, &before);
    if (now != 0)
        entry_path(changes->tree, now, &path);
    if (before.has_failed || path.has_failed)
        return -ENOMEM;
    if (now == 0) {
        const struct form form = is_dir ? none : form_before(list, id);
        if (!is_dir)
            put(list, "removed", before.bytes, NULL, &form, &none, NULL);
        return 0;
    }
    list->is_listed[now] = true;
    const struct entry *entry = entry_at(changes->tree, now);
    if (entry->dir != changes->now[was->dir->id] || strcmp(entry->name, was->name) != 0)
        put(list, "renamed", path.bytes, before.bytes, &none, &none, NULL);
    if (is_dir)
        return 0;
    const bool is_same = entry->node == changes->now[was->node->id];
    return !is_same || (changes_is_edited(entry->node) && is_first_name(changes, id))
               ? put_changed(list, id, now, path.bytes)
               : 0;
}

static bool is_data(enum node_kind kind)
{
    return kind == NODE_DIR || kind == NODE_FILE || kind == NODE_VALUE || kind == NODE_METADATA;
}

static int list_catalog(struct list *list)
{
    const struct wfs_tree *loaded = list->changes.loaded;
    int code = 0;
    for (uint32_t id = 1; id <= loaded->entries.n_items && code == 0; id++) {
        const struct entry *entry = entry_at(loaded, id);
        if (entry->node != NULL && entry->node != loaded->control &&
            is_data((enum node_kind)entry->node->kind))
            code = look_at(list, id);
    }
    return code;
}

/* ---- new names ---- */

static int look_at_new(struct list *list, uint32_t id)
{
    const struct wfs_tree *tree = list->changes.tree;
    const struct entry *entry = entry_at(tree, id);
    autostrbuf struct strbuf path = {0}, other = {0};
    struct form form;
    uint32_t link = entry->node->entry;
    while (link != 0 && (link == id || (list->changes.origin[link] == 0 && !list->is_listed[link])))
        link = entry_at(tree, link)->next;
    entry_path(tree, id, &path);
    if (link != 0)
        entry_path(tree, link, &other);
    const int code = form_now(list, id, &form);
    if (path.has_failed || other.has_failed || code < 0)
        return code < 0 ? code : -ENOMEM;
    list->is_listed[id] = true;
    put(list, link != 0 ? "linked" : "added", path.bytes, link != 0 ? other.bytes : NULL, &none,
        link != 0 ? &none : &form, NULL);
    return 0;
}

static int list_new(struct list *list)
{
    const struct wfs_tree *tree = list->changes.tree;
    int code = 0;
    for (uint32_t id = 1; id <= list->changes.n_entries && code == 0; id++) {
        const struct entry *entry = entry_at(tree, id);
        if (entry->node == NULL || list->changes.origin[id] != 0 || list->is_listed[id] ||
            entry->dir == tree->control || entry->dir == tree->out ||
            entry->node->kind == NODE_DIR || entry_is_scratch(tree, id))
            continue;
        code = look_at_new(list, id);
    }
    return code;
}

/* ---- all ---- */

static int fill(struct list *list, const struct wfs_tree *tree)
{
    int code = changes_find(tree, &list->changes, NULL);
    if (code < 0)
        return code;
    list->is_listed = calloc(list->changes.n_entries + 1u, sizeof(bool));
    if (list->is_listed == NULL)
        return -ENOMEM;
    strbuf_puts(&list->text, list->is_json ? "[" : "");
    code = list_catalog(list);
    if (code == 0)
        code = list_new(list);
    if (list->is_json)
        strbuf_puts(&list->text, list->n > 0 ? "\n]\n" : "]\n");
    return code == 0 && list->text.has_failed ? -ENOMEM : code;
}

int wfs_tree_list_edits(const struct wfs_tree *tree, bool is_json, char **ret, size_t *ret_n_bytes)
{
    struct list list = {.is_json = is_json};
    const int code = fill(&list, tree);
    changes_done(&list.changes);
    arena_done(&list.arena);
    free(list.is_listed);
    if (code < 0) {
        strbuf_done(&list.text);
        return code;
    }
    *ret = list.text.bytes;
    *ret_n_bytes = list.text.n_bytes;
    return 0;
}
