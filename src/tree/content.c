/* SPDX-License-Identifier: MIT */
/*
 * Content is a tensor of the catalog, or a generated text, until the first change. That one copies
 * what is shown into a staged file, where all later ones go. A change that does not fit the disk
 * fails in the call that asks for it and changes nothing.
 */
#include "tree/content.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#include "tree/control/control.h"
#include "tree/file/description.h"
#include "tree/file/editfile.h"
#include "tree/file/valuefile.h"
#include "tree/node/entry.h"
#include "tree/node/notes.h"
#include "tree/frame.h"
#include "tree/stage/stage.h"
#include "tree/staging.h"

uint64_t content_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node)
{
    uint64_t n_bytes = 0;
    struct control_look look;
    if (node->kind == NODE_DIR)
        return 0;
    if (node->kind == NODE_FILE || edit_is_staged(node))
        return edit_n_bytes(node) + frame_header_n_bytes(tree, node);
    if (node->kind == NODE_VALUE)
        return valuefile_n_bytes(tree, node, &n_bytes) < 0 ? 0 : n_bytes;
    (void)control_look(tree, node, 0, &look);
    return look.n_bytes;
}

int wfs_node_check(const struct wfs_tree *tree, const struct wfs_node *node)
{
    (void)tree;
    if (node->edit != NULL && node->edit->is_lost)
        return -EIO;
    if (node->kind != NODE_FILE || edit_is_staged(node) || node->tensor == NULL)
        return 0;
    return wfs_tensor_check_source(node->tensor);
}

bool wfs_node_has_unseen_change(const struct wfs_tree *tree, const struct wfs_node *node)
{
    const struct edit *edit = node->edit;
    return edit != NULL &&
           (edit->has_new_text || (edit->has_new_header && tree->options.files == WFS_FILES_NPY));
}

/* ---- reading ---- */

ssize_t wfs_node_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                      void *buf, size_t n_bytes)
{
    if (node->kind == NODE_DIR)
        return -EISDIR;
    n_bytes = n_bytes < SSIZE_MAX ? n_bytes : SSIZE_MAX;
    if (edit_is_staged(node))
        return editfile_read(tree, node, offset, buf, n_bytes);
    if (node->kind == NODE_VALUE)
        return valuefile_read(tree, node, offset, buf, n_bytes);
    if (node->kind != NODE_FILE)
        return control_read(tree, node, 0, offset, buf, n_bytes);
    const struct wfs_tensor tensor = description_shown(node);
    return frame_read(&tensor, frame_header_n_bytes(tree, node), offset, buf, n_bytes);
}

ssize_t wfs_number_read(const struct wfs_tree *tree, uint64_t number, uint64_t offset, void *buf,
                        size_t n_bytes)
{
    const struct wfs_node *node = wfs_tree_node(tree, number);
    if (!node_is_fixed(node))
        return wfs_node_read(tree, node, offset, buf, n_bytes);
    n_bytes = n_bytes < SSIZE_MAX ? n_bytes : SSIZE_MAX;
    return control_read(tree, node, number, offset, buf, n_bytes);
}

/* Returns 0 when the content may be changed. */
static int check_change(const struct wfs_tree *tree, const struct wfs_node *node)
{
    if (!tree_is_open(tree))
        return -EROFS;
    if (node->kind == NODE_DIR)
        return -EISDIR;
    if (node_is_fixed(node))
        return -EACCES;
    uint64_t n_bytes;
    if (node->kind == NODE_VALUE && !edit_is_staged(node))
        return valuefile_n_bytes(tree, node, &n_bytes); /* how much is kept must be known */
    return node->edit != NULL && node->edit->is_lost ? -EIO : 0;
}

/* A text is generated as a whole when it is read, and not large. */
static int stage_text(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep)
{
    autofree char *text = malloc((size_t)n_keep + 1);
    if (text == NULL)
        return -ENOMEM;
    const ssize_t n = n_keep == 0 ? 0 : wfs_node_read(tree, node, 0, text, (size_t)n_keep);
    if (n != (ssize_t)n_keep)
        return n < 0 ? (int)n : -EIO;
    return editfile_put(tree, node, text, (size_t)n_keep);
}

/* Makes the node ready for a change that keeps the first n_keep bytes. */
static int prepare(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep)
{
    if (node->kind == NODE_FILE && !edit_is_staged(node))
        return staging_begin(tree, node, n_keep);
    if (!edit_is_staged(node) || node->edit->number == 0)
        return stage_text(tree, node, n_keep);
    const int code = node->edit->is_recorded ? 0 : notes_edit(tree, node, node->edit->number);
    node->edit->is_recorded |= code == 0;
    return code;
}

/* ---- writing ---- */

ssize_t wfs_node_write(struct wfs_tree *tree, struct wfs_node *node, uint64_t offset,
                       const void *buf, size_t n_bytes, bool is_append)
{
    int code = check_change(tree, node);
    if (code < 0 || n_bytes == 0)
        return code;
    const uint64_t n_shown = content_n_bytes(tree, node);
    offset = is_append ? n_shown : offset;
    if (offset > INT64_MAX || n_bytes > INT64_MAX - offset)
        return -EFBIG;
    ssize_t n;
    if (!edit_is_staged(node) && offset == 0 && n_bytes >= n_shown) {
        code = editfile_put(tree, node, buf, n_bytes);
        n = code < 0 ? code : (ssize_t)n_bytes;
    } else {
        code = prepare(tree, node, n_shown);
        n = code < 0
                ? code
                : datafiles_write(&tree->stage->data, node->edit->number, offset, buf, n_bytes);
    }
    if (n < 0)
        return n;
    if (offset + (uint64_t)n > node->edit->n_bytes)
        edit_set_n_bytes(tree, node->edit, offset + (uint64_t)n);
    editfile_touch(tree, node);
    return n;
}

int wfs_node_truncate(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_bytes)
{
    int code = check_change(tree, node);
    if (code < 0)
        return code;
    const uint64_t n_shown = content_n_bytes(tree, node);
    if (n_bytes > INT64_MAX)
        return -EFBIG;
    if (n_bytes == n_shown)
        return 0;
    code = prepare(tree, node, n_bytes < n_shown ? n_bytes : n_shown);
    if (code == 0)
        code = datafiles_resize(&tree->stage->data, node->edit->number, n_bytes);
    if (code < 0)
        return code;
    edit_set_n_bytes(tree, node->edit, n_bytes);
    editfile_touch(tree, node);
    return 0;
}

int wfs_node_fallocate(struct wfs_tree *tree, struct wfs_node *node, int mode, uint64_t offset,
                       uint64_t n_bytes)
{
    const int known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
    int code = check_change(tree, node);
    if (code < 0)
        return code;
    if ((mode & ~known) != 0)
        return -EOPNOTSUPP;
    if (n_bytes == 0)
        return -EINVAL;
    if (offset > INT64_MAX || n_bytes > INT64_MAX - offset)
        return -EFBIG;
    code = prepare(tree, node, content_n_bytes(tree, node));
    if (code == 0)
        code = datafiles_allocate(&tree->stage->data, node->edit->number, mode, offset, n_bytes);
    if (code < 0)
        return code;
    if ((mode & FALLOC_FL_KEEP_SIZE) == 0 && offset + n_bytes > node->edit->n_bytes)
        edit_set_n_bytes(tree, node->edit, offset + n_bytes);
    editfile_touch(tree, node);
    return 0;
}

/* ---- opening ---- */

int wfs_node_may_open(struct wfs_tree *tree, struct wfs_node *node, int flags)
{
    const bool is_writing = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
    if (is_writing && node->kind == NODE_DIR)
        return -EISDIR;
    if (is_writing && !tree_is_open(tree))
        return -EROFS;
    if (is_writing && node_is_fixed(node))
        return -EACCES;
    if ((flags & O_TRUNC) != 0)
        return wfs_node_truncate(tree, node, 0);
    if (node->kind >= NODE_MADE)
        return 0; /* its reader gets the error, if there is one */
    uint64_t n_bytes;
    struct control_look look;
    if (node->edit != NULL && node->edit->is_lost)
        return -EIO;
    if (node->kind == NODE_VALUE && !edit_is_staged(node))
        return valuefile_n_bytes(tree, node, &n_bytes);
    return node->kind == NODE_FILE || node->kind == NODE_DIR || edit_is_staged(node)
               ? 0
               : control_look(tree, node, 0, &look);
}

const struct wfs_tensor *wfs_node_loaded(const struct wfs_node *node)
{
    return node->kind == NODE_FILE && !edit_is_staged(node) ? node->tensor : NULL;
}

int wfs_node_open(struct wfs_tree *tree, struct wfs_node *node, int flags)
{
    const int code = wfs_node_may_open(tree, node, flags);
    return code < 0 || (flags & O_TRUNC) != 0 ? code : wfs_node_check(tree, node);
}

/* ---- durability ---- */

int wfs_node_sync(struct wfs_tree *tree, struct wfs_node *node)
{
    if (tree->stage == NULL)
        return 0;
    const int code = editfile_sync(tree, node);
    return code < 0 ? code : stage_sync_journal(tree->stage);
}

void wfs_tree_rescue(struct wfs_tree *tree)
{
    for (struct edit *edit = tree->edits; edit != NULL; edit = edit->next) {
        if (edit->has_failed)
            editfile_rescue(tree, edit);
    }
}

int wfs_tree_sync(struct wfs_tree *tree, struct wfs_error *err)
{
    for (struct edit *edit = tree->edits; edit != NULL; edit = edit->next) {
        const int code = editfile_sync(tree, edit->node);
        if (code == 0 || !edit_is_shown(tree, edit->node))
            continue;
        autostrbuf struct strbuf path = {0};
        entry_path(tree, edit->node->entry, &path);
        return wfs_fail(err, -code, "the staging directory cannot keep '%s': %s",
                        wfs_quote(path.bytes == NULL ? "?" : path.bytes).text, strerror(-code));
    }
    return 0;
}
