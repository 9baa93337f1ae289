/* SPDX-License-Identifier: MIT */
/*
 * A tree and its catalog, matched, and how they differ as a list. Numbers of nodes are not
 * compared: a file that was removed and restored has another one.
 */
#include "tree/pristine.h"

#include <weightfs/json_out.h>
#include <weightfs/tree.h>
#include <weightfs/value.h>
#include "tensor/tensor.h"
#include "tree/file/description.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- matching ---- */

static void match_nodes(struct changes *changes)
{
    const struct pool *nodes = &changes->tree->nodes;
    for (uint32_t id = 1; id <= nodes->n_items; id++) {
        struct wfs_node *node = pool_at(nodes, id);
        /* The pristine tree lacks the files that the caller generates, which are the last ones. */
        const uint32_t loaded = node->id == id ? node_loaded(node) : 0;
        if (loaded == 0 || node_is_unlinked(node) || loaded > changes->loaded->nodes.n_items)
            continue;
        changes->now[loaded] = node;
        changes->before[id] = loaded;
    }
}

static void pair(struct changes *changes, uint32_t id, uint32_t loaded_id)
{
    changes->origin[id] = loaded_id;
    changes->current[loaded_id] = id;
}

static bool is_placed(const struct entry *entry)
{
    return entry->node != NULL && entry->node->kind != NODE_DIR && entry->order != ORDER_NEW;
}

/* Files keep their place in the output, whatever their name is. */
static int match_files(struct changes *changes)
{
    const struct wfs_tree *tree = changes->tree, *loaded = changes->loaded;
    const size_t n_orders =
        wfs_catalog_n_tensors(tree->catalog) + wfs_catalog_n_values(tree->catalog);
    uint32_t *by_order = arena_calloc(&changes->arena, n_orders + 1, sizeof(*by_order));
    if (by_order == NULL)
        return -ENOMEM;
    for (uint32_t id = 1; id <= loaded->entries.n_items; id++) {
        if (is_placed(entry_at(loaded, id)))
            by_order[entry_at(loaded, id)->order] = id;
    }
    for (uint32_t id = 1; id <= tree->entries.n_items; id++) {
        const struct entry *entry = entry_at(tree, id);
        if (is_placed(entry) && by_order[entry->order] != 0)
            pair(changes, id, by_order[entry->order]);
    }
    return 0;
}

/* A directory has one name, and so has the file of the metadata. */
static void match_others(struct changes *changes)
{
    const struct wfs_tree *loaded = changes->loaded;
    for (uint32_t id = 1; id <= loaded->entries.n_items; id++) {
        const struct wfs_node *node = entry_at(loaded, id)->node;
        const struct wfs_node *now = node == NULL ? NULL : changes->now[node->id];
        if (now != NULL && (now->kind == NODE_DIR || now->kind == NODE_METADATA) && now->entry != 0)
            pair(changes, now->entry, id);
    }
}

int changes_refresh(struct changes *changes)
{
    const struct wfs_tree *tree = changes->tree, *loaded = changes->loaded;
    struct arena *arena = &changes->arena;
    arena_done(arena);
    changes->n_entries = tree->entries.n_items;
    changes->n_nodes = tree->nodes.n_items;
    changes->now = arena_calloc(arena, loaded->nodes.n_items + 1u, sizeof(*changes->now));
    changes->current = arena_calloc(arena, loaded->entries.n_items + 1u, sizeof(uint32_t));
    changes->origin = arena_calloc(arena, changes->n_entries + 1u, sizeof(uint32_t));
    changes->before = arena_calloc(arena, changes->n_nodes + 1u, sizeof(uint32_t));
    if (changes->now == NULL || changes->current == NULL || changes->origin == NULL ||
        changes->before == NULL)
        return -ENOMEM;
    match_nodes(changes);
    if (match_files(changes) < 0)
        return -ENOMEM;
    match_others(changes);
    return 0;
}

int changes_find(const struct wfs_tree *tree, struct changes *ret, struct wfs_error *err)
{
    *ret = (struct changes){.tree = tree};
    const int code = wfs_tree_unedited(tree, &ret->loaded, err);
    if (code < 0)
        return code;
    return changes_refresh(ret) < 0 ? wfs_fail_memory(err) : 0;
}

void changes_done(struct changes *changes)
{
    arena_done(&changes->arena);
    pristine_free(changes->loaded);
    *changes = (struct changes){0};
}

const struct wfs_node *changes_before(const struct changes *changes, const struct wfs_node *node)
{
    const uint32_t id = node->id <= changes->n_nodes ? changes->before[node->id] : 0;
    return id == 0 ? NULL : pool_at(&changes->loaded->nodes, id);
}

bool changes_is_edited(const struct wfs_node *node)
{
    const struct edit *edit = node->kind == NODE_DIR ? NULL : node->edit;
    if (edit == NULL)
        return false;
    return edit->is_staged || edit->has_dtype || edit->has_shape ||
           edit->texts[TENSOR_PARAM_ID] != NULL || edit->texts[TENSOR_QUANTIZATION] != NULL;
}

bool changes_is_in_place(const struct changes *changes, uint32_t loaded_entry)
{
    const struct entry *was = entry_at(changes->loaded, loaded_entry);
    const uint32_t id = changes->current[loaded_entry];
    if (id == 0)
        return false;
    const struct entry *is = entry_at(changes->tree, id);
    return is->dir == changes->now[was->dir->id] && is->node == changes->now[was->node->id] &&
           strcmp(is->name, was->name) == 0;
}

uint64_t changes_count_names(const struct changes *changes)
{
    const struct wfs_tree *tree = changes->tree, *loaded = changes->loaded;
    uint64_t n = 0;
    for (uint32_t id = 1; id <= loaded->entries.n_items; id++) {
        const struct entry *entry = entry_at(loaded, id);
        const bool is_of_commit = entry->node != NULL && entry->node->kind <= NODE_METADATA &&
                                  entry->node->kind != NODE_TENSORS;
        /* A directory that is gone went with the files in it. */
        n += is_of_commit && !changes_is_in_place(changes, id) &&
             (entry->node->kind != NODE_DIR || changes->current[id] != 0);
    }
    for (uint32_t id = 1; id <= tree->entries.n_items; id++) {
        const struct entry *entry = entry_at(tree, id);
        n += entry->node != NULL && changes->origin[id] == 0 &&
             changes->before[entry->node->id] != 0 && entry->node->kind != NODE_DIR &&
             !entry_is_scratch(tree, id);
    }
    return n;
}

/* ---- the list ---- */

enum change { CHANGE_REMOVED, CHANGE_RENAMED, CHANGE_CHANGED, CHANGE_LINKED, CHANGE_ADDED };

static const char *const change_names[] = {"removed", "renamed", "changed", "linked", "added"};

/* What a file is, in the source or now. */
struct form {
    bool is_there, has_dtype, has_shape;
    uint8_t dtype;
    struct wfs_shape shape;
    uint64_t n_bytes;
};

static const struct form none;

struct list {
    struct changes changes;
    struct strbuf text;
    bool is_json;
    struct json_out json; /* into the text */
    bool *is_listed;      /* by entry of the tree: it takes the place of one that is gone */
    bool *is_claimed;     /* by entry of the tree: a file was exchanged into its place */
    uint32_t *exchanged;  /* by entry of the catalog: that place, or 0 */
};

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
    if (entry->node->kind != NODE_FILE || valuefile_is_one(entry) || edit_is_lost(entry->node))
        return 0;
    const int code =
        sibling_describe(tree, entry->node, id, &list->changes.arena, &description, NULL);
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

static void put_form_json(struct json_out *json, const char *name, const struct form *form)
{
    if (!form->is_there)
        return;
    json_out_open(json, name, '{', JSON_ROW);
    if (form->has_dtype)
        json_out_text(json, "dtype", wfs_dtype_name((enum wfs_dtype)form->dtype));
    if (form->has_shape)
        json_out_u64s(json, "shape", form->shape.dims, form->shape.rank);
    json_out_u64(json, "bytes", form->n_bytes);
    json_out_close(json);
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

/* Returns the next name of an attribute that was set, from the i-th on; NULL: none. */
static const char *next_attribute(const struct edit *edit, size_t *i)
{
    while (edit != NULL && *i < TENSOR_N_TEXTS && edit->texts[*i] == NULL)
        ++*i;
    return edit == NULL || *i == TENSOR_N_TEXTS ? NULL : tensor_text_names[(*i)++];
}

/* other is the path before, or of the file that is linked; NULL: none. */
static void put_json(struct list *list, enum change change, const char *path, const char *other,
                     const struct form *before, const struct form *now, const struct edit *edit)
{
    struct json_out *json = &list->json;
    size_t i = 0;
    const char *name = next_attribute(edit, &i);
    json_out_open(json, NULL, '{', JSON_ROW);
    json_out_text(json, "change", change_names[change]);
    json_out_text(json, "path", path);
    if (other != NULL)
        json_out_text(json, change == CHANGE_LINKED ? "to" : "from", other);
    put_form_json(json, "before", before);
    put_form_json(json, "after", now);
    if (name != NULL) {
        json_out_open(json, "attributes", '[', JSON_ROW);
        for (; name != NULL; name = next_attribute(edit, &i))
            json_out_text(json, NULL, name);
        json_out_close(json);
    }
    json_out_close(json);
}

static void put(struct list *list, enum change change, const char *path, const char *other,
                const struct form *before, const struct form *now, const struct edit *edit)
{
    struct strbuf *text = &list->text;
    const bool is_link = change == CHANGE_LINKED;
    size_t i = 0;
    if (list->is_json) {
        put_json(list, change, path, other, before, now, edit);
        return;
    }
    strbuf_printf(text, "%-8s  %s", change_names[change], is_link || other == NULL ? path : other);
    if (other != NULL)
        strbuf_printf(text, " -> %s", is_link ? other : path);
    put_forms(text, before, now);
    const char *between = "; ", *name;
    for (; (name = next_attribute(edit, &i)) != NULL; between = ", ")
        strbuf_printf(text, "%s%s", between, name);
    strbuf_puts(text, *between == ',' ? " set\n" : "\n");
}

/* ---- names of the catalog ---- */

/* Returns a directory of the catalog, or what was made in its place, or NULL. The parts of a key
 * bound the depth. */
static const struct wfs_node *find_dir(const struct changes *changes, const struct wfs_node *dir)
{
    if (changes->now[dir->id] != NULL)
        return changes->now[dir->id];
    const struct entry *was = entry_at(changes->loaded, dir->entry);
    const struct wfs_node *above = find_dir(changes, was->dir);
    const uint32_t heir = above == NULL ? 0 : entry_find(changes->tree, above, was->name);
    const struct wfs_node *made = heir == 0 ? NULL : entry_at(changes->tree, heir)->node;
    return made != NULL && made->kind == NODE_DIR ? made : NULL;
}

/* Returns what was made in the place of a name that is gone, or 0. */
static uint32_t find_heir(const struct list *list, uint32_t id)
{
    const struct changes *changes = &list->changes;
    const struct entry *was = entry_at(changes->loaded, id);
    const struct wfs_node *dir = find_dir(changes, was->dir);
    const uint32_t heir = dir == NULL ? 0 : entry_find(changes->tree, dir, was->name);
    return heir != 0 && changes->origin[heir] == 0 &&
                   entry_at(changes->tree, heir)->node->kind != NODE_DIR
               ? heir
               : 0;
}

/* A file with several names is listed by the first of them that it still has. 0: it has none. */
static uint32_t first_name(const struct changes *changes, uint32_t id)
{
    const struct entry *was = entry_at(changes->loaded, id);
    const struct wfs_node *now = changes->now[was->node->id];
    uint32_t first = 0;
    for (uint32_t at = was->node->entry; at != 0; at = entry_at(changes->loaded, at)->next) {
        const uint32_t current = changes->current[at];
        if (current != 0 && entry_at(changes->tree, current)->node == now)
            first = at;
    }
    return first;
}

/* Returns the place of another loaded file that the file of a name was exchanged into, or 0. */
static uint32_t find_exchanged(const struct list *list, uint32_t id)
{
    const struct changes *changes = &list->changes;
    const struct wfs_node *node = entry_at(changes->loaded, id)->node;
    const struct wfs_node *now = node == NULL ? NULL : changes->now[node->id];
    const uint32_t current = changes->current[id];
    const bool has_left = now != NULL && current != 0 && node->kind != NODE_DIR &&
                          entry_at(changes->tree, current)->node != now;
    for (uint32_t at = has_left ? now->entry : 0; at != 0; at = entry_at(changes->tree, at)->next) {
        const uint32_t place = changes->origin[at];
        if (place != 0 && !list->is_claimed[at] && entry_at(changes->loaded, place)->node != node)
            return at;
    }
    return 0;
}

static int look_at(struct list *list, uint32_t id)
{
    const struct changes *changes = &list->changes;
    const struct entry *was = entry_at(changes->loaded, id);
    const uint32_t exchanged = list->exchanged[id];
    const bool has_lost = exchanged == 0 && list->is_claimed[changes->current[id]];
    const uint32_t current = exchanged != 0 ? exchanged : has_lost ? 0 : changes->current[id];
    const bool is_dir = was->node->kind == NODE_DIR;
    const uint32_t found = current != 0 || is_dir || has_lost ? current : find_heir(list, id);
    /* What is scratch is not committed, and its removal not an edit. */
    const bool is_left =
        found != 0 && was->node->kind != NODE_METADATA && entry_is_scratch(changes->tree, found);
    const uint32_t now = is_left ? 0 : found;
    autostrbuf struct strbuf before = {0}, path = {0};
    entry_path(changes->loaded, id, &before);
    if (now != 0)
        entry_path(changes->tree, now, &path);
    if (before.has_failed || path.has_failed)
        return -ENOMEM;
    if (now == 0) {
        const struct form form = is_dir ? none : form_before(list, id);
        if (!is_dir)
            put(list, CHANGE_REMOVED, before.bytes, NULL, &form, &none, NULL);
        return 0;
    }
    list->is_listed[now] = true;
    const struct entry *entry = entry_at(changes->tree, now);
    if (entry->dir != find_dir(changes, was->dir) || strcmp(entry->name, was->name) != 0)
        put(list, CHANGE_RENAMED, path.bytes, before.bytes, &none, &none, NULL);
    if (is_dir)
        return 0;
    const bool is_same = entry->node == changes->now[was->node->id];
    if (is_same &&
        !(changes_is_edited(entry->node) && first_name(changes, id) == (exchanged != 0 ? 0 : id)))
        return 0;
    struct form form;
    const struct form form_was = form_before(list, id);
    const int code = form_now(list, now, &form);
    if (code == 0)
        put(list, CHANGE_CHANGED, path.bytes, NULL, &form_was, &form, entry->node->edit);
    return code;
}

static int list_catalog(struct list *list)
{
    const struct wfs_tree *loaded = list->changes.loaded;
    int code = 0;
    for (uint32_t id = 1; id <= loaded->entries.n_items && code == 0; id++) {
        const struct wfs_node *node = entry_at(loaded, id)->node;
        const bool is_data = node != NULL && node != loaded->control &&
                             (node->kind <= NODE_VALUE || node->kind == NODE_METADATA);
        code = is_data ? look_at(list, id) : 0;
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
    put(list, link != 0 ? CHANGE_LINKED : CHANGE_ADDED, path.bytes, link != 0 ? other.bytes : NULL,
        &none, link != 0 ? &none : &form, NULL);
    return 0;
}

static int list_new(struct list *list)
{
    const struct wfs_tree *tree = list->changes.tree;
    int code = 0;
    for (uint32_t id = 1; id <= list->changes.n_entries && code == 0; id++) {
        const struct entry *entry = entry_at(tree, id);
        if (entry->node == NULL || list->is_listed[id] || entry->dir == tree->control ||
            entry->dir == tree->out || entry->node->kind == NODE_DIR || entry_is_scratch(tree, id))
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
    struct arena *arena = &list->changes.arena;
    const uint32_t n_loaded = list->changes.loaded->entries.n_items;
    list->is_listed = arena_calloc(arena, list->changes.n_entries + 1u, sizeof(bool));
    list->is_claimed = arena_calloc(arena, list->changes.n_entries + 1u, sizeof(bool));
    list->exchanged = arena_calloc(arena, n_loaded + 1u, sizeof(uint32_t));
    if (list->is_listed == NULL || list->is_claimed == NULL || list->exchanged == NULL)
        return -ENOMEM;
    for (uint32_t id = 1; id <= n_loaded; id++) {
        list->exchanged[id] = find_exchanged(list, id);
        list->is_claimed[list->exchanged[id]] = true;
    }
    list->is_claimed[0] = false;
    if (list->is_json)
        json_out_open(&list->json, NULL, '[', JSON_LINES);
    code = list_catalog(list);
    if (code == 0)
        code = list_new(list);
    if (list->is_json)
        json_out_close(&list->json);
    return code == 0 && list->text.has_failed ? -ENOMEM : code;
}

int wfs_tree_list_edits(const struct wfs_tree *tree, bool is_json, char **ret, size_t *ret_n_bytes)
{
    struct list list = {.is_json = is_json, .json.text = &list.text};
    strbuf_puts(&list.text, "");
    const int code = fill(&list, tree);
    changes_done(&list.changes);
    if (code < 0) {
        strbuf_done(&list.text);
        return code;
    }
    *ret = list.text.bytes;
    *ret_n_bytes = list.text.n_bytes;
    return 0;
}
