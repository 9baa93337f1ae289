/* SPDX-License-Identifier: MIT */
/*
 * Edits, the counts of changes, attributes of other programs, and the end of nodes.
 */
#include "tree/node/edit.h"

#include "tensor/tensor.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"
#include "tree/stage/journal.h"
#include "tree/stage/stage.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

/* Returns where the pointer to the attribute is, or to where a new one would be. */
static struct foreign_attr **find(struct foreign *foreign, const char *name)
{
    struct foreign_attr **at = &foreign->first;
    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

const struct foreign_attr *foreign_find(const struct foreign *foreign, const char *name)
{
    const struct foreign_attr *at = foreign->first;
    while (at != NULL && strcmp(at->name, name) != 0)
        at = at->next;
    return at;
}

static uint64_t cost(const struct foreign_attr *attr)
{
    return attr == NULL ? 0 : strlen(attr->name) + attr->n_bytes;
}

static void take_out(struct foreign *foreign, struct foreign_attr **at)
{
    struct foreign_attr *gone = *at;
    *at = gone->next;
    foreign->n_bytes -= cost(gone);
    free(gone);
}

int foreign_set(struct foreign *foreign, const char *name, const void *value, size_t n_bytes,
                int flags, uint64_t n_room)
{
    const struct foreign_attr *old = foreign_find(foreign, name);
    const size_t n_name = strlen(name) + 1;
    if (n_bytes > FOREIGN_VALUE_MAX)
        return -E2BIG;
    if ((flags & XATTR_CREATE) != 0 && old != NULL)
        return -EEXIST;
    if ((flags & XATTR_REPLACE) != 0 && old == NULL)
        return -ENODATA;
    const uint64_t n_all = foreign->n_bytes - cost(old) + strlen(name) + n_bytes;
    if (n_all > FOREIGN_NODE_MAX || n_all > n_room)
        return -ENOSPC;
    struct foreign_attr *attr = malloc(sizeof(*attr) + n_name + n_bytes);
    if (attr == NULL)
        return -ENOMEM;
    if (old != NULL)
        take_out(foreign, find(foreign, name));
    memcpy(attr->name, name, n_name);
    attr->value = attr->name + n_name;
    attr->n_bytes = n_bytes;
    if (n_bytes > 0)
        memcpy(attr->value, value, n_bytes);
    attr->next = foreign->first;
    foreign->first = attr;
    foreign->n_bytes += cost(attr);
    return 0;
}

int foreign_remove(struct foreign *foreign, const char *name)
{
    struct foreign_attr **at = find(foreign, name);
    if (*at == NULL)
        return -ENODATA;
    take_out(foreign, at);
    return 0;
}

struct edit *edit_of(struct wfs_tree *tree, struct wfs_node *node)
{
    if (node->edit != NULL)
        return node->edit;
    struct edit *edit = calloc(1, sizeof(*edit));
    if (edit == NULL)
        return NULL;
    edit->node = node;
    edit->next = tree->edits;
    if (tree->edits != NULL)
        tree->edits->previous = edit;
    tree->edits = edit;
    node->edit = edit;
    return edit;
}

/* A clock that was set back does not take the ctime with it. */
void edit_touch(struct wfs_tree *tree, struct wfs_node *node)
{
    const bool is_dir = node->kind == NODE_DIR;
    struct edit *edit = is_dir ? NULL : edit_of(tree, node);
    if (!is_dir && edit == NULL)
        return;
    struct timespec now = node_now(), *ctime = is_dir ? &node->directory->ctime : &edit->ctime;
    if (!node_is_before(ctime, &now)) {
        now = *ctime;
        now.tv_sec += now.tv_nsec == 999999999;
        now.tv_nsec = now.tv_nsec == 999999999 ? 0 : now.tv_nsec + 1;
    }
    *ctime = now;
}

/* Gives up what the edit has: its staged file, unless that stays, and all that was set. */
static void drop(struct wfs_tree *tree, struct edit *edit, bool keeps_file)
{
    if (edit->number != 0 && !keeps_file)
        datafiles_remove(&tree->stage->data, edit->number);
    if (edit->changed > tree->committed)
        tree->n_changed_nodes--;
    edit_set_unsynced(tree, edit, false);
    tree->n_foreign_bytes -= edit->foreign.n_bytes;
    while (edit->foreign.first != NULL)
        take_out(&edit->foreign, &edit->foreign.first);
    free((uint64_t *)(uintptr_t)edit->shape.dims);
    for (size_t i = 0; i < TENSOR_N_TEXTS; i++)
        free(edit->texts[i]);
}

static void free_edit(struct wfs_tree *tree, struct wfs_node *node)
{
    struct edit *edit = node->edit;
    if (edit == NULL)
        return;
    if (edit->previous != NULL)
        edit->previous->next = edit->next;
    else
        tree->edits = edit->next;
    if (edit->next != NULL)
        edit->next->previous = edit->previous;
    drop(tree, edit, !node_is_unlinked(node));
    free(edit);
    node->edit = NULL;
}

/* The version and the ctime only grow: whoever kept one finds that the node has changed. */
void edit_reset(struct wfs_tree *tree, struct wfs_node *node)
{
    struct edit *edit = node->edit;
    if (edit == NULL)
        return;
    if (edit->is_staged)
        edit_set_n_bytes(tree, edit,
                         node->kind == NODE_FILE && node->tensor != NULL ? node->tensor->n_bytes
                                                                         : 0);
    drop(tree, edit, false);
    *edit = (struct edit){.node = node,
                          .next = edit->next,
                          .previous = edit->previous,
                          .loaded = edit->loaded,
                          .version = edit->version + 1,
                          .ctime = edit->ctime};
    edit_touch(tree, node);
}

uint64_t edit_n_bytes(const struct wfs_node *node)
{
    if (node->edit != NULL && node->edit->is_staged)
        return node->edit->n_bytes;
    return node->kind == NODE_FILE && node->tensor != NULL ? node->tensor->n_bytes : 0;
}

void edit_set_n_bytes(struct wfs_tree *tree, struct edit *edit, uint64_t n_bytes)
{
    tree->n_bytes += n_bytes - edit->n_bytes;
    edit->n_bytes = n_bytes;
}

void edit_set_unsynced(struct wfs_tree *tree, struct edit *edit, bool is_unsynced)
{
    tree->n_unsynced += (uint64_t)is_unsynced - (uint64_t)edit->is_unsynced;
    edit->is_unsynced = is_unsynced;
}

bool edit_is_shown(const struct wfs_tree *tree, const struct wfs_node *node)
{
    for (uint32_t id = node->entry; id != 0; id = entry_at(tree, id)->next) {
        if (entry_at(tree, id)->dir == tree->control)
            return entry_metadata(tree) == node;
        if (!entry_is_scratch(tree, id))
            return true;
    }
    return false;
}

void edit_mark(struct wfs_tree *tree, struct edit *edit)
{
    edit->version++;
    if (!edit_is_shown(tree, edit->node))
        return;
    if (edit->changed <= tree->committed)
        tree->n_changed_nodes++;
    edit->changed = ++tree->generation;
    tree->changed_at = node_now();
}

void edit_mark_entry(struct wfs_tree *tree, bool is_shown)
{
    if (!is_shown)
        return;
    tree->generation++;
    tree->n_changed_entries++;
    tree->changed_at = node_now();
}

int edit_set_shape(struct edit *edit, const struct wfs_shape *shape)
{
    uint64_t *dims = NULL;
    if (shape->rank > 0) {
        dims = reallocarray(NULL, shape->rank, sizeof(*dims));
        if (dims == NULL)
            return -ENOMEM;
        memcpy(dims, shape->dims, shape->rank * sizeof(*dims));
    }
    free((uint64_t *)(uintptr_t)edit->shape.dims);
    edit->shape = (struct wfs_shape){shape->rank, dims};
    edit->has_shape = true;
    return 0;
}

/* Copies those texts of the other one that this one has not. */
static int inherit_texts(struct edit *edit, const struct edit *from)
{
    for (size_t i = 0; i < TENSOR_N_TEXTS; i++) {
        if (edit->texts[i] != NULL || from->texts[i] == NULL)
            continue;
        edit->texts[i] = strdup(from->texts[i]);
        if (edit->texts[i] == NULL)
            return -ENOMEM;
    }
    return 0;
}

int edit_inherit(struct wfs_tree *tree, struct wfs_node *node, const struct wfs_node *from,
                 bool takes_dtype, bool takes_shape)
{
    struct edit *edit = edit_of(tree, node);
    const struct edit *other = from->edit;
    if (edit == NULL)
        return -ENOMEM;
    edit->version++;
    if (other != NULL && takes_shape && !edit->has_shape && other->has_shape &&
        edit_set_shape(edit, &other->shape) < 0)
        return -ENOMEM;
    if (other != NULL && inherit_texts(edit, other) < 0)
        return -ENOMEM;
    if (other != NULL && takes_dtype && !edit->has_dtype && other->has_dtype) {
        edit->has_dtype = true;
        edit->dtype = other->dtype;
    }
    if (node->kind == NODE_FILE && from->kind == NODE_FILE && from->tensor != NULL) {
        node->tensor = from->tensor;
        edit->is_namesake = false;
    }
    return 0;
}

/* ---- the end of nodes ---- */

static void free_content(struct wfs_tree *tree, struct wfs_node *node)
{
    if (node->kind == NODE_DIR) {
        free(node->directory->ids);
        free(node->directory);
    }
    free_edit(tree, node);
}

void edit_release(struct wfs_tree *tree, struct wfs_node *node)
{
    const uint32_t id = node->id;
    if (id == 0 || !node_is_unlinked(node) || atomic_load(&node->n_refs) != 0)
        return;
    tree->n_nodes--;
    tree->n_bytes -= edit_n_bytes(node);
    free_content(tree, node);
    /* A place whose generations are used up is left empty: no number is used twice. */
    const uint32_t generation = node->generation + 1;
    *node = (struct wfs_node){.generation = generation & (NODE_GENERATIONS - 1)};
    if (generation < NODE_GENERATIONS)
        pool_give(&tree->nodes, id);
}

void edit_free_all(struct wfs_tree *tree)
{
    for (uint32_t id = 1; id <= tree->entries.n_items; id++) {
        struct entry *entry = entry_at(tree, id);
        if (entry->owns_name)
            free((char *)(uintptr_t)entry->name);
    }
    for (uint32_t id = 1; id <= tree->nodes.n_items; id++) {
        struct wfs_node *node = pool_at(&tree->nodes, id);
        if (node->id == id)
            free_content(tree, node);
    }
}

void wfs_node_reap(struct wfs_tree *tree, struct wfs_node *node)
{
    edit_release(tree, node);
}

/* ---- counts ---- */

void edit_settle(struct wfs_tree *tree, uint64_t generation)
{
    uint64_t n_nodes = 0;
    for (const struct edit *edit = tree->edits; edit != NULL; edit = edit->next)
        n_nodes += edit->changed > generation;
    /* Each change of names since then counted one generation. */
    const uint64_t n_since = atomic_load(&tree->generation) - generation;
    if (atomic_load(&tree->n_changed_entries) > n_since)
        atomic_store(&tree->n_changed_entries, n_since);
    atomic_store(&tree->n_changed_nodes, n_nodes);
    atomic_store(&tree->committed, generation);
}

uint64_t wfs_tree_generation(const struct wfs_tree *tree)
{
    return atomic_load(&tree->generation);
}

bool wfs_tree_has_pending(const struct wfs_tree *tree)
{
    return atomic_load(&tree->generation) != atomic_load(&tree->committed);
}

uint64_t wfs_tree_n_edits(const struct wfs_tree *tree)
{
    return atomic_load(&tree->n_changed_nodes) + atomic_load(&tree->n_changed_entries);
}

/* ---- records of the journal ---- */

/* While a journal is replayed nothing is recorded. */
static int append(struct wfs_tree *tree, const struct strbuf *text)
{
    if (tree->is_replaying)
        return 0;
    return text->has_failed ? -ENOMEM : stage_append(tree->stage, text->bytes, text->n_bytes);
}

/* Adds the path of an entry (0: the root), or of a name in it (NULL: none), which need not exist.
 */
static void add_path(const struct wfs_tree *tree, uint32_t id, const char *name,
                     struct strbuf *text)
{
    autostrbuf struct strbuf path = {0};
    entry_path(tree, id, &path);
    strbuf_puts(&path, id != 0 && name != NULL ? "/" : "");
    strbuf_puts(&path, name != NULL ? name : "");
    text->has_failed |= path.has_failed;
    if (!text->has_failed)
        record_word(text, path.bytes, path.n_bytes);
}

int notes_name(struct wfs_tree *tree, enum wfs_record_kind kind, const struct wfs_node *dir,
               const char *name)
{
    autostrbuf struct strbuf text = {0};
    record_begin(&text, kind);
    add_path(tree, dir->entry, name, &text);
    return append(tree, &text);
}

int notes_move(struct wfs_tree *tree, const struct wfs_node *from_dir, const char *from_name,
               const struct wfs_node *to_dir, const char *to_name, unsigned flags)
{
    autostrbuf struct strbuf text = {0};
    record_begin(&text, WFS_RECORD_MOVE);
    add_path(tree, from_dir->entry, from_name, &text);
    add_path(tree, to_dir->entry, to_name, &text);
    record_number(&text, flags);
    return append(tree, &text);
}

int notes_link(struct wfs_tree *tree, const struct wfs_node *node, const struct wfs_node *dir,
               const char *name)
{
    autostrbuf struct strbuf text = {0};
    record_begin(&text, WFS_RECORD_LINK);
    add_path(tree, node->entry, NULL, &text);
    add_path(tree, dir->entry, name, &text);
    return append(tree, &text);
}

int notes_edit(struct wfs_tree *tree, const struct wfs_node *node, uint64_t number)
{
    autostrbuf struct strbuf text = {0}, shape = {0};
    const struct wfs_tensor *tensor = node->kind == NODE_FILE ? node->tensor : NULL;
    if (node->entry == 0)
        return 0;
    record_begin(&text, WFS_RECORD_EDIT);
    record_number(&text, number);
    add_path(tree, node->entry, NULL, &text);
    if (tensor == NULL) {
        strbuf_puts(&text, " - - -");
        return append(tree, &text);
    }
    shape_print(&shape, &tensor->shape);
    text.has_failed |= shape.has_failed;
    record_puts(&text, wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    if (!text.has_failed)
        record_word(&text, shape.bytes, shape.n_bytes);
    record_puts(&text, wfs_tensor_origin(tensor));
    return append(tree, &text);
}

int notes_synced(struct wfs_tree *tree, const struct wfs_node *node)
{
    autostrbuf struct strbuf text = {0};
    if (node->entry == 0)
        return 0;
    record_begin(&text, WFS_RECORD_SYNC);
    record_number(&text, node->edit->number);
    record_number(&text, node->edit->n_bytes);
    add_path(tree, node->entry, NULL, &text);
    return append(tree, &text);
}

int notes_attr(struct wfs_tree *tree, const struct wfs_node *node, const char *name,
               const char *value, size_t n_bytes)
{
    autostrbuf struct strbuf text = {0};
    if (node->entry == 0)
        return 0;
    record_begin(&text, WFS_RECORD_ATTR);
    add_path(tree, node->entry, NULL, &text);
    record_puts(&text, name);
    if (value != NULL)
        record_word(&text, value, n_bytes);
    return append(tree, &text);
}

int notes_revert(struct wfs_tree *tree, const char *paths)
{
    autostrbuf struct strbuf text = {0};
    record_begin(&text, WFS_RECORD_REVERT);
    record_puts(&text, paths);
    return append(tree, &text);
}

int notes_settle(struct wfs_tree *tree, const struct wfs_node *node, int code)
{
    if (code < 0 && (node == NULL || node->entry != 0) && !tree->is_replaying)
        journal_undo(&tree->stage->journal);
    return code;
}
