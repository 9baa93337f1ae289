/* SPDX-License-Identifier: MIT */
/*
 * A file whose fdatasync failed is never trusted again: a second one could report success for bytes
 * that are lost, so the content moves to a copy.
 */
#include "tree/file/editfile.h"

#include "base/source.h"
#include "tree/node/edit.h"
#include "tree/stage/stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

ssize_t editfile_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                      void *buf, size_t n_bytes)
{
    const struct edit *edit = node->edit;
    if (edit_is_lost(node))
        return -EIO;
    if (offset >= edit->n_bytes)
        return 0;
    const uint64_t n_left = edit->n_bytes - offset;
    const size_t n_wanted = n_bytes < n_left ? n_bytes : (size_t)n_left;
    const ssize_t n = datafiles_read(&tree->stage->data, edit->number, offset, buf, n_wanted);
    return n >= 0 && (size_t)n < n_wanted ? -EIO : n;
}

int editfile_read_all(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t n_max,
                      char **ret, size_t *ret_n_bytes)
{
    const uint64_t n_bytes = edit_n_bytes(node);
    if (n_bytes > n_max)
        return -EFBIG;
    autofree char *bytes = malloc((size_t)n_bytes + 1);
    if (bytes == NULL)
        return -ENOMEM;
    const ssize_t n = n_bytes == 0 ? 0 : editfile_read(tree, node, 0, bytes, (size_t)n_bytes);
    if (n < 0)
        return (int)n;
    bytes[n] = '\0';
    *ret = steal(&bytes);
    *ret_n_bytes = (size_t)n;
    return 0;
}

/* ---- as a source ---- */

struct staged_file {
    struct datafiles *data;
    uint64_t number;
    bool is_lost;
};

static int read_source(const struct source *source, const struct wfs_io *io, uint64_t offset,
                       void *buf, size_t n_bytes)
{
    const struct staged_file *file = source->ctx;
    if (file->is_lost)
        return -EIO;
    if (n_bytes == 0)
        return 0;
    const ssize_t n = datafiles_read(file->data, file->number, offset, buf, n_bytes);
    return n < 0 ? (int)n : (size_t)n < n_bytes ? -EIO : 0;
}

static void free_file(void *ctx)
{
    free(ctx);
}

int editfile_source(const struct wfs_tree *tree, const struct wfs_node *node, struct source **out)
{
    const struct edit *edit = node->edit;
    static const struct source_kind kind = {.read = read_source, .done = free_file};
    struct staged_file *file = malloc(sizeof(*file));
    if (file == NULL)
        return -ENOMEM;
    *file = (struct staged_file){&tree->stage->data, edit->number, edit_is_lost(node)};
    return source_new(&kind, "an edit", file, edit->n_bytes, out);
}

/* ---- writing ---- */

int editfile_adopt(struct wfs_tree *tree, struct wfs_node *node, uint64_t number, uint64_t n_bytes)
{
    struct edit *edit = node->edit;
    const int code = notes_edit(tree, node, number);
    if (code < 0) {
        datafiles_remove(&tree->stage->data, number);
        return code;
    }
    edit->n_bytes = edit_n_bytes(node);
    if (edit->number != 0)
        datafiles_remove(&tree->stage->data, edit->number);
    edit->number = number;
    edit->is_staged = edit->is_recorded = true;
    edit->health = edit_is_lost(node) ? EDIT_LOST : EDIT_SOUND;
    edit_set_unsynced(tree, edit, true);
    edit_set_n_bytes(tree, edit, n_bytes);
    return 0;
}

int editfile_put(struct wfs_tree *tree, struct wfs_node *node, const char *bytes, size_t n_bytes)
{
    struct datafiles *data = &tree->stage->data;
    uint64_t number;
    if (edit_of(tree, node) == NULL)
        return -ENOMEM;
    int code = datafiles_make(data, &number);
    if (code < 0)
        return code;
    if (n_bytes > 0)
        code = datafiles_allocate(data, number, 0, 0, n_bytes);
    if (code == 0 || code == -EOPNOTSUPP)
        code = datafiles_write_all(data, number, 0, bytes, n_bytes);
    if (code < 0) {
        datafiles_remove(data, number);
        return code;
    }
    return editfile_adopt(tree, node, number, n_bytes);
}

void editfile_touch(struct wfs_tree *tree, struct wfs_node *node)
{
    edit_set_unsynced(tree, node->edit, true);
    node->edit->has_mtime = true;
    node->edit->mtime = node_now();
    const mode_t mode = node->edit->mode;
    node->edit->mode &= ~(mode_t)(S_ISUID | ((mode & S_IXGRP) != 0 ? S_ISGID : 0));
    edit_touch(tree, node);
    edit_mark(tree, node->edit);
}

/* ---- durability ---- */

int editfile_sync(struct wfs_tree *tree, struct wfs_node *node)
{
    struct edit *edit = node->edit;
    if (edit == NULL || !edit->is_staged)
        return 0;
    if (edit_is_lost(node))
        return -EIO;
    if (!edit->is_unsynced || edit->number == 0)
        return 0;
    int code = datafiles_sync(&tree->stage->data, edit->number);
    edit->health = code < 0 ? EDIT_FAILED : EDIT_SOUND;
    if (code == 0)
        code = notes_synced(tree, node);
    if (code < 0)
        return code;
    edit->is_recorded = false;
    edit_set_unsynced(tree, edit, false);
    return 0;
}

static int copy_staged(struct datafiles *data, const struct edit *edit, uint64_t number)
{
    enum { N_PIECE = 1 << 18 };
    autofree char *buf = malloc(N_PIECE);
    if (buf == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0; offset < edit->n_bytes;) {
        const uint64_t n_left = edit->n_bytes - offset;
        const ssize_t n = datafiles_read(data, edit->number, offset, buf,
                                         n_left < N_PIECE ? (size_t)n_left : N_PIECE);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        const int code = datafiles_write_all(data, number, offset, buf, (size_t)n);
        if (code < 0)
            return code;
        offset += (uint64_t)n;
    }
    return 0;
}

void editfile_rescue(struct wfs_tree *tree, struct edit *edit)
{
    struct datafiles *data = &tree->stage->data;
    uint64_t number;
    int code = datafiles_make(data, &number);
    edit->health = EDIT_LOST;
    if (code < 0)
        return;
    code = copy_staged(data, edit, number);
    if (code == 0)
        code = notes_edit(tree, edit->node, number);
    datafiles_remove(data, code < 0 ? number : edit->number);
    if (code == 0) {
        edit->number = number;
        edit->health = EDIT_SOUND;
    }
}
