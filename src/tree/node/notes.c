/* SPDX-License-Identifier: MIT */
/*
 * Nodes are named by their path at the time of the record.
 */
#include "tensor/shape.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/stage/journal.h"
#include "tree/stage/stage.h"

#include <errno.h>
#include <string.h>

static bool is_off(const struct wfs_tree *tree)
{
    return tree->is_replaying;
}

static int append(struct wfs_tree *tree, const struct strbuf *text)
{
    return text->has_failed ? -ENOMEM : stage_append(tree->stage, text->bytes, text->n_bytes);
}

static void add_path(const struct wfs_tree *tree, uint32_t id, struct strbuf *text)
{
    autostrbuf struct strbuf path = {0};
    entry_path(tree, id, &path);
    text->has_failed |= path.has_failed || path.bytes == NULL;
    if (!text->has_failed)
        record_word(text, path.bytes, path.n_bytes);
}

/* Adds the path of a name that need not exist. */
static void add_name(const struct wfs_tree *tree, const struct wfs_node *dir, const char *name,
                     struct strbuf *text)
{
    autostrbuf struct strbuf path = {0};
    if (dir->entry != 0) {
        entry_path(tree, dir->entry, &path);
        strbuf_puts(&path, "/");
    }
    strbuf_puts(&path, name);
    text->has_failed |= path.has_failed;
    if (!text->has_failed)
        record_word(text, path.bytes, path.n_bytes);
}

static int note_name(struct wfs_tree *tree, enum wfs_record_kind kind, const struct wfs_node *dir,
                     const char *name)
{
    autostrbuf struct strbuf text = {0};
    if (is_off(tree))
        return 0;
    record_begin(&text, kind);
    add_name(tree, dir, name, &text);
    return append(tree, &text);
}

int notes_make(struct wfs_tree *tree, const struct wfs_node *dir, const char *name, bool is_dir)
{
    return note_name(tree, is_dir ? WFS_RECORD_DIRECTORY : WFS_RECORD_FILE, dir, name);
}

int notes_remove(struct wfs_tree *tree, const struct wfs_node *dir, const char *name)
{
    return note_name(tree, WFS_RECORD_REMOVE, dir, name);
}

int notes_move(struct wfs_tree *tree, const struct wfs_node *from_dir, const char *from_name,
               const struct wfs_node *to_dir, const char *to_name, unsigned flags)
{
    autostrbuf struct strbuf text = {0};
    if (is_off(tree))
        return 0;
    record_begin(&text, WFS_RECORD_MOVE);
    add_name(tree, from_dir, from_name, &text);
    add_name(tree, to_dir, to_name, &text);
    record_number(&text, flags);
    return append(tree, &text);
}

int notes_link(struct wfs_tree *tree, const struct wfs_node *node, const struct wfs_node *dir,
               const char *name)
{
    autostrbuf struct strbuf text = {0};
    if (is_off(tree))
        return 0;
    record_begin(&text, WFS_RECORD_LINK);
    add_path(tree, node->entry, &text);
    add_name(tree, dir, name, &text);
    return append(tree, &text);
}

static void add_origin(const struct wfs_node *node, struct strbuf *text)
{
    const struct wfs_tensor *tensor = node->kind == NODE_FILE ? node->tensor : NULL;
    if (tensor == NULL) {
        strbuf_puts(text, " - - -");
        return;
    }
    autostrbuf struct strbuf shape = {0};
    shape_print(&shape, &tensor->shape);
    text->has_failed |= shape.has_failed;
    record_puts(text, wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    if (!text->has_failed)
        record_word(text, shape.bytes, shape.n_bytes);
    record_puts(text, wfs_tensor_origin(tensor));
}

int notes_edit(struct wfs_tree *tree, const struct wfs_node *node, uint64_t number)
{
    autostrbuf struct strbuf text = {0};
    if (is_off(tree) || node->entry == 0)
        return 0;
    record_begin(&text, WFS_RECORD_EDIT);
    record_number(&text, number);
    add_path(tree, node->entry, &text);
    add_origin(node, &text);
    return append(tree, &text);
}

int notes_synced(struct wfs_tree *tree, const struct wfs_node *node)
{
    autostrbuf struct strbuf text = {0};
    if (is_off(tree) || node->entry == 0)
        return 0;
    record_begin(&text, WFS_RECORD_SYNC);
    record_number(&text, node->edit->number);
    record_number(&text, node->edit->n_bytes);
    add_path(tree, node->entry, &text);
    return append(tree, &text);
}

int notes_attr(struct wfs_tree *tree, const struct wfs_node *node, const char *name,
               const char *value, size_t n_bytes)
{
    autostrbuf struct strbuf text = {0};
    if (is_off(tree) || node->entry == 0)
        return 0;
    record_begin(&text, WFS_RECORD_ATTR);
    add_path(tree, node->entry, &text);
    record_puts(&text, name);
    if (value != NULL)
        record_word(&text, value, n_bytes);
    return append(tree, &text);
}

int notes_revert(struct wfs_tree *tree, const char *paths)
{
    autostrbuf struct strbuf text = {0};
    if (is_off(tree))
        return 0;
    record_begin(&text, WFS_RECORD_REVERT);
    record_puts(&text, paths);
    return append(tree, &text);
}

int notes_settle(struct wfs_tree *tree, const struct wfs_node *node, int code)
{
    const bool is_recorded = node == NULL || node->entry != 0;
    if (code < 0 && is_recorded && !is_off(tree))
        stage_undo(tree->stage);
    return code;
}
