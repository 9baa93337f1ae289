/* SPDX-License-Identifier: MIT */
/*
 * Content is a tensor of the catalog, or a generated text, until the first change. That one copies
 * what is shown into a staged file, where all later ones go. A change that does not fit the disk
 * fails in the call that asks for it and changes nothing. Copies and readings take what they need
 * of the node, so that they can run while the tree changes.
 */
#include "tree/content.h"

#include <weightfs/cleanup.h>
#include <weightfs/interruption.h>
#include <weightfs/tree.h>
#include "base/source.h"
#include "tensor/tensor.h"
#include "tree/control/control.h"
#include "tree/file/description.h"
#include "tree/file/editfile.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"
#include "tree/stage/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

enum { N_PIECE = 1 << 20, N_COPY = 16 << 20 };

/* The first bytes of a tensor file on their way to a staged one. */
struct copy {
    struct datafiles *data;
    uint64_t number, n_keep; /* of the staged file; how many bytes */
    struct wfs_tensor tensor;
    size_t n_header; /* bytes of a generated header before the data */
    struct arena arena;
};

/* A tensor of repeated elements may be much larger than its file; an edit would fill the disk. */
static bool is_blown_up(const struct wfs_node *node, uint64_t n_keep)
{
    const struct source *source = node->tensor->stored.source;
    return source != NULL && n_keep / 16 > source->n_bytes;
}

/* Copies at most n_bytes at offset inside the kernel; *n_bytes becomes the count. -EOPNOTSUPP. */
static int copy_in_kernel(const struct copy *copy, uint64_t offset, size_t *n_bytes)
{
    int fd;
    uint64_t from;
    if (offset < copy->n_header || !wfs_tensor_extent(&copy->tensor, &fd, &from) || fd < 0)
        return -EOPNOTSUPP;
    *n_bytes = *n_bytes < N_COPY ? *n_bytes : N_COPY;
    return datafiles_copy(copy->data, copy->number, offset, fd, from + offset - copy->n_header,
                          *n_bytes);
}

static int copy_all(const struct wfs_io *io, const struct copy *copy)
{
    autofree char *buf = malloc(N_PIECE);
    bool is_in_kernel = true;
    if (buf == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0; offset < copy->n_keep;) {
        const uint64_t n_left = copy->n_keep - offset;
        size_t n = n_left < N_COPY ? (size_t)n_left : N_COPY;
        int code = wfs_io_check(io);
        if (code == 0)
            code = is_in_kernel ? copy_in_kernel(copy, offset, &n) : -EOPNOTSUPP;
        if (code == -EOPNOTSUPP) {
            is_in_kernel = offset < copy->n_header; /* after the header it is worth a try */
            n = n_left < N_PIECE ? (size_t)n_left : N_PIECE;
            const ssize_t n_read = frame_read(io, &copy->tensor, copy->n_header, offset, buf, n);
            code = n_read == (ssize_t)n
                       ? datafiles_write_all(copy->data, copy->number, offset, buf, n)
                   : n_read < 0 ? (int)n_read
                                : -EIO;
        }
        if (code < 0)
            return code;
        offset += n;
    }
    return wfs_tensor_check_source(&copy->tensor);
}

/* Allocates what the file is to begin with, where the disk can do that. */
static int run_copy(const struct wfs_io *io, const struct copy *copy)
{
    const int code =
        copy->n_keep == 0 ? 0 : datafiles_allocate(copy->data, copy->number, 0, 0, copy->n_keep);
    return code < 0 && code != -EOPNOTSUPP ? code : copy_all(io, copy);
}

/* Takes what the copy needs, so that the tree may change: the edit of the node owns its shape. */
static int begin_copy(struct wfs_tree *tree, const struct wfs_node *node, uint64_t n_keep,
                      struct copy *copy)
{
    *copy = (struct copy){.data = &tree->stage->data,
                          .n_keep = n_keep,
                          .tensor = description_shown(node),
                          .n_header = frame_header_n_bytes(tree, node)};
    if (shape_own(&copy->tensor.shape, &copy->arena) < 0)
        return -ENOMEM;
    const int code = datafiles_make(copy->data, &copy->number);
    if (code < 0)
        arena_done(&copy->arena);
    return code;
}

/* Ends a copy, given the result of its run: it becomes the content of the node, or is removed. */
static int end_copy(struct wfs_tree *tree, struct wfs_node *node, struct copy *copy, int code)
{
    if (code == 0 && edit_of(tree, node) == NULL)
        code = -ENOMEM;
    if (code == 0)
        code = editfile_adopt(tree, node, copy->number, copy->n_keep);
    else
        datafiles_remove(copy->data, copy->number);
    arena_done(&copy->arena);
    return code;
}

/* ---- copies without the tree ---- */

struct wfs_change_copy {
    struct copy copy;
    const struct wfs_node *node;
    const struct wfs_tensor *base; /* of the node, when the copy began */
    uint64_t version;              /* of its edit; 0: none */
    int code;                      /* of the run */
};

static uint64_t version_of(const struct wfs_node *node)
{
    return node->edit == NULL ? 0 : node->edit->version;
}

void wfs_tree_set_change(struct wfs_tree *tree, struct wfs_change *change)
{
    tree->change = change;
}

void wfs_change_copy(const struct wfs_io *io, struct wfs_change *change)
{
    change->copy->code = run_copy(io, &change->copy->copy);
}

void wfs_change_done(struct wfs_change *change)
{
    if (change->copy == NULL)
        return;
    datafiles_remove(change->copy->copy.data, change->copy->copy.number);
    arena_done(&change->copy->copy.arena);
    free(change->copy);
    change->copy = NULL;
}

static int begin_change(struct wfs_tree *tree, const struct wfs_node *node, uint64_t n_keep,
                        struct wfs_change *change)
{
    struct wfs_change_copy *copy = calloc(1, sizeof(*copy));
    const int code = copy == NULL ? -ENOMEM : begin_copy(tree, node, n_keep, &copy->copy);
    if (code < 0) {
        free(copy);
        return code;
    }
    copy->node = node;
    copy->base = node->tensor;
    copy->version = version_of(node);
    change->copy = copy;
    return -EINPROGRESS;
}

/* Takes the copy that was made, if it still is one of the content, or begins one. */
static int stage_apart(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep,
                       struct wfs_change *change)
{
    struct wfs_change_copy *copy = change->copy;
    if (copy != NULL && (copy->node != node || copy->base != node->tensor ||
                         copy->version != version_of(node) || copy->copy.n_keep != n_keep))
        wfs_change_done(change);
    if (change->copy == NULL)
        return begin_change(tree, node, n_keep, change);
    change->copy = NULL;
    const int code = end_copy(tree, node, &copy->copy, copy->code);
    free(copy);
    return code;
}

int staging_begin(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep)
{
    struct copy copy;
    if (!tree->options.allows_large && is_blown_up(node, n_keep))
        return -EFBIG;
    if (tree->change != NULL && n_keep > 0)
        return stage_apart(tree, node, n_keep, tree->change);
    const int code = begin_copy(tree, node, n_keep, &copy);
    return code < 0 ? code : end_copy(tree, node, &copy, run_copy(NULL, &copy));
}

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
    if (edit_is_lost(node))
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
    return frame_read(NULL, &tensor, frame_header_n_bytes(tree, node), offset, buf, n_bytes);
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
    return edit_is_lost(node) ? -EIO : 0;
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
    if (edit_is_lost(node))
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
        if (edit->health == EDIT_FAILED)
            editfile_rescue(tree, edit);
    }
}

int wfs_tree_sync(struct wfs_tree *tree, struct wfs_error *err)
{
    for (struct edit *edit = tree->edits; edit != NULL; edit = edit->next) {
        const int code = editfile_sync(tree, edit->node);
        if (code == 0 || !edit_is_shown(tree, edit->node))
            continue;
        return wfs_fail(err, -code, "the staging directory cannot keep '%s': %s",
                        entry_quoted(tree, edit->node->entry).text, strerror(-code));
    }
    return 0;
}

struct wfs_reading {
    struct wfs_tensor tensor;
    size_t n_header; /* bytes of a generated header before the data */
    struct arena arena;
    const struct wfs_tree_made *made; /* NULL: the tensor is read */
    const void *held;
    const struct wfs_node *node; /* of what is generated: lives as long as the tree */
    uint64_t number;
};

static int hold(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                struct wfs_reading *reading)
{
    const int code = control_hold(tree, node, number, &reading->held);
    reading->made = code < 0 ? NULL : wfs_node_made(tree, node);
    reading->node = node;
    reading->number = number;
    return code;
}

static int take_tensor(const struct wfs_tree *tree, const struct wfs_node *node,
                       struct wfs_reading *reading)
{
    reading->tensor = description_shown(node);
    reading->n_header = frame_header_n_bytes(tree, node);
    return node->edit != NULL && node->edit->has_shape
               ? shape_own(&reading->tensor.shape, &reading->arena)
               : 0;
}

int wfs_reading_new(const struct wfs_tree *tree, uint64_t number, struct wfs_reading **ret)
{
    const struct wfs_node *node = wfs_tree_node(tree, number);
    const bool is_made = wfs_node_made(tree, node) != NULL;
    *ret = NULL;
    if (!is_made && (node->kind != NODE_FILE || edit_is_staged(node) || node->tensor == NULL))
        return 0;
    struct wfs_reading *reading = calloc(1, sizeof(*reading));
    if (reading == NULL)
        return -ENOMEM;
    const int code = is_made ? hold(tree, node, number, reading) : take_tensor(tree, node, reading);
    if (code < 0)
        wfs_reading_free(reading);
    else
        *ret = reading;
    return code;
}

void wfs_reading_free(struct wfs_reading *reading)
{
    if (reading == NULL)
        return;
    if (reading->made != NULL)
        reading->made->let_go(reading->made->ctx, reading->held);
    arena_done(&reading->arena);
    free(reading);
}

bool wfs_reading_is_plain(const struct wfs_reading *reading)
{
    const struct source *source = reading->tensor.stored.source;
    return reading->made == NULL && source != NULL && source_is_file(source) &&
           wfs_tensor_is_plain(&reading->tensor);
}

ssize_t wfs_reading_run(const struct wfs_io *io, const struct wfs_reading *reading, uint64_t offset,
                        void *buf, size_t n_bytes)
{
    n_bytes = n_bytes < SSIZE_MAX ? n_bytes : SSIZE_MAX;
    return reading->made != NULL
               ? reading->made->read(io, reading->held, offset, buf, n_bytes)
               : frame_read(io, &reading->tensor, reading->n_header, offset, buf, n_bytes);
}

int wfs_reading_check(const struct wfs_tree *tree, const struct wfs_reading *reading)
{
    return reading->made == NULL ? 0 : control_check_held(tree, reading->node, reading->number);
}

void wfs_reading_ahead(const struct wfs_io *io, const struct wfs_reading *reading, uint64_t offset)
{
    if (reading->made == NULL && offset >= reading->n_header)
        wfs_tensor_read_ahead(io, &reading->tensor, offset - reading->n_header);
}
