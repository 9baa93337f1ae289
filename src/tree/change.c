/* SPDX-License-Identifier: MIT */
/*
 * Changes of content: the first one of a node copies what is shown into a staged file, all others
 * go there. What does not fit the disk fails in the call that asks for it and changes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/source.h"
#include "tree/content.h"
#include "tree/control.h"
#include "tree/notes.h"
#include "tree/stage/stage.h"

/* ---- staging ---- */

/* A tensor may look larger than what it lies in; a copy of that is asked for by no tool in its
 * right mind. */
static bool is_blown_up(const struct wfs_node *node, uint64_t n_keep)
{
    const struct source *source =
        node->kind != NODE_FILE || node->tensor == NULL ? NULL : node->tensor->stored.source;
    return source != NULL && n_keep / 16 > source->n_bytes;
}

static int copy_piece(struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                      uint64_t offset, char *buf, size_t n_bytes)
{
    const ssize_t n = wfs_node_read(tree, node, offset, buf, n_bytes);
    if (n != (ssize_t)n_bytes)
        return n < 0 ? (int)n : -EIO;
    for (size_t n_done = 0; n_done < n_bytes;) {
        const ssize_t n_more =
            stage_write(tree->stage, number, offset + n_done, buf + n_done, n_bytes - n_done);
        if (n_more < 0)
            return (int)n_more;
        n_done += (size_t)n_more;
    }
    return 0;
}

static int copy_shown(struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                      uint64_t n_keep)
{
    enum { N_PIECE = 1 << 20 };
    autofree char *buf = malloc(N_PIECE);
    bool is_in_kernel = true;
    if (buf == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0; offset < n_keep;) {
        const uint64_t n_left = n_keep - offset;
        size_t n = n_left < SIZE_MAX ? (size_t)n_left : SIZE_MAX;
        int fd, code = -EOPNOTSUPP;
        uint64_t from;
        if (is_in_kernel && wfs_node_extent(tree, node, offset, &n, &fd, &from)) {
            code = stage_copy(tree->stage, number, offset, fd, from, n);
            is_in_kernel = code == 0;
        }
        if (code == -EOPNOTSUPP) {
            n = n_left < N_PIECE ? (size_t)n_left : N_PIECE;
            code = copy_piece(tree, node, number, offset, buf, n);
        }
        if (code < 0)
            return code;
        offset += n;
    }
    return wfs_node_check(tree, node);
}

/* The staged file is the content from now on, instead of an older one. Nobody's when it fails. */
static int adopt_staged(struct wfs_tree *tree, struct wfs_node *node, uint64_t number,
                        uint64_t n_bytes)
{
    struct edit *edit = node->edit;
    const int code = notes_edit(tree, node, number);
    if (code < 0) {
        stage_remove(tree->stage, number);
        return code;
    }
    edit->n_bytes = edit_n_bytes(node);
    if (edit->number != 0)
        stage_remove(tree->stage, edit->number);
    edit->number = number;
    edit->is_staged = edit->is_recorded = true;
    edit->has_failed = edit->is_doubtful = false;
    edit_set_unsynced(tree, edit, true);
    edit_set_n_bytes(tree, edit, n_bytes);
    return 0;
}

int content_stage(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep)
{
    struct edit *edit = edit_of(tree, node);
    uint64_t number;
    if (edit == NULL)
        return -ENOMEM;
    if (!tree->options.allows_large && is_blown_up(node, n_keep))
        return -EFBIG;
    int code = stage_make(tree->stage, &number);
    if (code < 0)
        return code;
    if (n_keep > 0) {
        code = stage_allocate(tree->stage, number, 0, 0, n_keep);
        if (code == 0 || code == -EOPNOTSUPP)
            code = copy_shown(tree, node, number, n_keep);
    }
    if (code < 0) {
        stage_remove(tree->stage, number);
        return code;
    }
    return adopt_staged(tree, node, number, n_keep);
}

/* May the content be changed at all? */
static int check_change(const struct wfs_tree *tree, const struct wfs_node *node)
{
    if (tree->stage == NULL)
        return -EROFS;
    if (node->kind == NODE_DIR)
        return -EISDIR;
    if (node_is_fixed(node))
        return -EACCES;
    return node->edit != NULL && node->edit->is_lost ? -EIO : 0;
}

/* Makes the node ready for a change that keeps the first n_keep bytes. */
static int prepare(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep)
{
    if (!edit_is_staged(node) || node->edit->number == 0)
        return content_stage(tree, node, n_keep);
    const int code = node->edit->is_recorded ? 0 : notes_edit(tree, node, node->edit->number);
    node->edit->is_recorded |= code == 0;
    return code;
}

static void finish(struct wfs_tree *tree, struct wfs_node *node)
{
    edit_set_unsynced(tree, node->edit, true);
    node->edit->has_mtime = true;
    node->edit->mtime = node_now();
    edit_mark(tree, node->edit);
}

/* ---- writing ---- */

/* A new staged file with these bytes, all of them or none. */
static int stage_whole(struct wfs_tree *tree, struct wfs_node *node, const char *bytes,
                       size_t n_bytes)
{
    uint64_t number;
    if (edit_of(tree, node) == NULL)
        return -ENOMEM;
    int code = stage_make(tree->stage, &number);
    if (code < 0)
        return code;
    if (n_bytes > 0)
        code = stage_allocate(tree->stage, number, 0, 0, n_bytes);
    code = code == -EOPNOTSUPP ? 0 : code;
    for (size_t n_done = 0; n_done < n_bytes && code == 0;) {
        const ssize_t n =
            stage_write(tree->stage, number, n_done, bytes + n_done, n_bytes - n_done);
        code = n < 0 ? (int)n : 0;
        n_done += n > 0 ? (size_t)n : 0;
    }
    if (code < 0) {
        stage_remove(tree->stage, number);
        return code;
    }
    return adopt_staged(tree, node, number, n_bytes);
}

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
        code = stage_whole(tree, node, buf, n_bytes);
        n = code < 0 ? code : (ssize_t)n_bytes;
    } else {
        code = prepare(tree, node, n_shown);
        n = code < 0 ? code : stage_write(tree->stage, node->edit->number, offset, buf, n_bytes);
    }
    if (n < 0)
        return n;
    if (offset + (uint64_t)n > node->edit->n_bytes)
        edit_set_n_bytes(tree, node->edit, offset + (uint64_t)n);
    finish(tree, node);
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
        code = stage_resize(tree->stage, node->edit->number, n_bytes);
    if (code < 0)
        return code;
    edit_set_n_bytes(tree, node->edit, n_bytes);
    finish(tree, node);
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
        code = stage_allocate(tree->stage, node->edit->number, mode, offset, n_bytes);
    if (code < 0)
        return code;
    if ((mode & FALLOC_FL_KEEP_SIZE) == 0 && offset + n_bytes > node->edit->n_bytes)
        edit_set_n_bytes(tree, node->edit, offset + n_bytes);
    finish(tree, node);
    return 0;
}

int content_put(struct wfs_tree *tree, struct wfs_node *node, const char *bytes, size_t n_bytes)
{
    const int code = stage_whole(tree, node, bytes, n_bytes);
    if (code == 0)
        finish(tree, node);
    return code;
}

/* ---- times, mode, durability ---- */

int wfs_node_set_times(struct wfs_tree *tree, struct wfs_node *node, const struct timespec *mtime)
{
    if (tree->stage == NULL)
        return -EROFS;
    if (mtime == NULL || mtime->tv_nsec == UTIME_OMIT)
        return 0;
    const struct timespec time = mtime->tv_nsec == UTIME_NOW ? node_now() : *mtime;
    if (node->kind == NODE_DIR) {
        node->directory->mtime = time;
        return 0;
    }
    struct edit *edit = edit_of(tree, node);
    if (edit == NULL)
        return -ENOMEM;
    edit->has_mtime = true;
    edit->mtime = time;
    return 0;
}

int wfs_node_set_mode(struct wfs_tree *tree, struct wfs_node *node, mode_t mode)
{
    if (tree->stage == NULL)
        return -EROFS;
    if (node_is_fixed(node))
        return -EPERM;
    struct edit *edit = edit_of(tree, node);
    if (edit == NULL)
        return -ENOMEM;
    edit->has_mode = true;
    edit->mode = mode & 0777;
    return 0;
}

static int sync_content(struct wfs_tree *tree, struct wfs_node *node)
{
    struct edit *edit = node->edit;
    if (edit == NULL || !edit->is_staged)
        return 0;
    if (edit->is_lost)
        return -EIO;
    if (!edit->is_unsynced || edit->number == 0)
        return 0;
    int code = stage_sync(tree->stage, edit->number);
    edit->has_failed = code < 0;
    if (code == 0)
        code = notes_synced(tree, node);
    if (code < 0)
        return code;
    edit->is_recorded = edit->is_doubtful = false;
    edit_set_unsynced(tree, edit, false);
    return 0;
}

int wfs_node_sync(struct wfs_tree *tree, struct wfs_node *node)
{
    if (tree->stage == NULL)
        return 0;
    const int code = sync_content(tree, node);
    return code < 0 ? code : stage_sync_journal(tree->stage);
}

void wfs_tree_rescue(struct wfs_tree *tree)
{
    for (struct edit *edit = tree->edits; edit != NULL; edit = edit->next) {
        if (edit->has_failed)
            edit_rescue(tree, edit);
    }
}

int wfs_tree_sync(struct wfs_tree *tree, struct wfs_error *err)
{
    for (struct edit *edit = tree->edits; edit != NULL; edit = edit->next) {
        const int code = sync_content(tree, edit->node);
        if (code == 0 || !edit_is_shown(tree, edit->node))
            continue;
        autostrbuf struct strbuf path = {0};
        entry_path(tree, edit->node->entry, &path);
        return wfs_fail(err, -code, "the staging directory cannot keep '%s': %s",
                        wfs_quote(path.bytes == NULL ? "?" : path.bytes).text, strerror(-code));
    }
    return 0;
}
