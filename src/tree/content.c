/* SPDX-License-Identifier: MIT */
/*
 * Content: the catalog's tensor until the first write, then a staged file.
 */
#include "tree/content.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/source.h"
#include "tree/control.h"
#include "tree/stage/stage.h"
#include "tree/valuefile.h"

/* A header is made for what is shown. */
static bool is_framed(const struct wfs_tree *tree, const struct wfs_node *node)
{
    return tree->options.files == WFS_FILES_NPY && node->kind == NODE_FILE && !edit_is_staged(node);
}

struct wfs_tensor content_tensor(const struct wfs_node *node)
{
    struct wfs_tensor tensor = *node->tensor;
    const struct edit *edit = node->edit;
    if (edit == NULL || !(edit->has_dtype || edit->has_shape))
        return tensor;
    tensor.dtype = edit->has_dtype ? edit->dtype : tensor.dtype;
    tensor.shape = edit->has_shape ? edit->shape : tensor.shape;
    /* Only what lies there as it is shown is described anew without a copy. */
    tensor.stored = (struct wfs_stored){
        .source = tensor.stored.source, .offset = tensor.stored.offset, .dtype = tensor.dtype};
    return tensor;
}

static size_t header_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node)
{
    if (!is_framed(tree, node))
        return 0;
    const struct wfs_tensor tensor = content_tensor(node);
    return wfs_npy_header(&tensor, NULL, 0);
}

uint64_t content_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node)
{
    uint64_t n_bytes = 0;
    if (node->kind == NODE_DIR)
        return 0;
    if (node->kind == NODE_FILE || edit_is_staged(node))
        return edit_n_bytes(node) + header_n_bytes(tree, node);
    const int code = node->kind == NODE_VALUE ? valuefile_n_bytes(tree, node, &n_bytes)
                                              : control_n_bytes(tree, node, &n_bytes);
    /* One byte makes programs read what cannot be made, and be told why; none would look done. */
    return code == 0 ? n_bytes : node->kind >= NODE_MADE;
}

/* ---- stat, open ---- */

static struct timespec mtime_of(const struct wfs_tree *tree, const struct wfs_node *node)
{
    if (node->kind == NODE_DIR)
        return node->directory->mtime;
    if (node->edit != NULL && node->edit->has_mtime)
        return node->edit->mtime;
    if (node->kind == NODE_VALUE)
        return tree->mtime;
    if (node_is_fixed(node))
        return control_mtime(tree, node);
    const struct source *source = node->tensor == NULL ? NULL : node->tensor->stored.source;
    if (source == NULL || source->identity.mtime_ns == 0)
        return tree->mtime;
    const int64_t ns = source->identity.mtime_ns,
                  rest = (ns % 1000000000 + 1000000000) % 1000000000;
    return (struct timespec){.tv_sec = (ns - rest) / 1000000000, .tv_nsec = rest};
}

/*
 * A read-only tree keeps the owner's write bit, as a filesystem that is mounted read-only does:
 * copies of its files would otherwise refuse the attributes that are set on them next.
 */
static mode_t mode_of(const struct wfs_tree *tree, const struct wfs_node *node)
{
    const bool is_writable = !node_is_fixed(node);
    const mode_t type = node->kind == NODE_DIR ? S_IFDIR : S_IFREG;
    if (node->edit != NULL && node->edit->has_mode)
        return type | node->edit->mode;
    const mode_t bits = (node->kind == NODE_DIR ? 0555 : 0444) | (is_writable ? 0200 : 0);
    return type | (bits & ~tree->options.umask);
}

void wfs_node_stat(const struct wfs_tree *tree, const struct wfs_node *node, struct stat *ret)
{
    const uint64_t n_bytes = content_n_bytes(tree, node);
    const struct timespec mtime = mtime_of(tree, node);
    *ret = (struct stat){
        .st_ino = node->ino,
        .st_mode = mode_of(tree, node),
        .st_nlink = atomic_load_explicit(&node->n_links, memory_order_relaxed),
        .st_uid = tree->options.uid,
        .st_gid = tree->options.gid,
        .st_size = (off_t)n_bytes,
        .st_blksize = 4096,
        .st_blocks = (blkcnt_t)(n_bytes / 512 + (n_bytes % 512 != 0)),
        .st_atim = mtime,
        .st_mtim = mtime,
        .st_ctim = mtime,
    };
}

int wfs_node_open(struct wfs_tree *tree, struct wfs_node *node, int flags)
{
    const bool is_writing = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
    if (is_writing && node->kind == NODE_DIR)
        return -EISDIR;
    if (is_writing && tree->stage == NULL)
        return -EROFS;
    if (is_writing && node_is_fixed(node))
        return -EACCES;
    if ((flags & O_TRUNC) != 0)
        return wfs_node_truncate(tree, node, 0);
    if (node->kind >= NODE_MADE)
        return 0; /* who makes it tells whether it can be had */
    uint64_t n_bytes;
    if (node->kind == NODE_VALUE && !edit_is_staged(node))
        return valuefile_n_bytes(tree, node, &n_bytes);
    return node->kind == NODE_FILE || node->kind == NODE_DIR || edit_is_staged(node)
               ? wfs_node_check(tree, node)
               : control_n_bytes(tree, node, &n_bytes);
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

/* ---- reading ---- */

bool wfs_node_extent(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                     size_t *n_bytes, int *ret_fd, uint64_t *ret_offset)
{
    if (node->kind != NODE_FILE || edit_is_staged(node))
        return false;
    const uint64_t n_header = header_n_bytes(tree, node);
    uint64_t from;
    if (offset < n_header || !wfs_tensor_extent(node->tensor, ret_fd, &from))
        return false;
    offset -= n_header;
    if (offset >= node->tensor->n_bytes)
        return false;
    const uint64_t n_left = node->tensor->n_bytes - offset;
    *n_bytes = *n_bytes < n_left ? *n_bytes : (size_t)n_left;
    *ret_offset = from + offset;
    return true;
}

static ssize_t read_staged(const struct wfs_tree *tree, const struct edit *edit, uint64_t offset,
                           void *buf, size_t n_bytes)
{
    if (edit->is_lost)
        return -EIO;
    if (offset >= edit->n_bytes)
        return 0;
    const uint64_t n_left = edit->n_bytes - offset;
    const size_t n_wanted = n_bytes < n_left ? n_bytes : (size_t)n_left;
    const ssize_t n = stage_read(tree->stage, edit->number, offset, buf, n_wanted);
    return n >= 0 && (size_t)n < n_wanted ? -EIO : n;
}

/* Header and data as one. */
static ssize_t read_framed(const struct wfs_node *node, uint64_t offset, void *buf, size_t n_bytes)
{
    const struct wfs_tensor tensor = content_tensor(node);
    const size_t n_header = wfs_npy_header(&tensor, NULL, 0);
    size_t n_front = 0;
    if (offset < n_header) {
        autofree char *header = malloc(n_header);
        if (header == NULL)
            return -ENOMEM;
        wfs_npy_header(&tensor, header, n_header);
        n_front = n_header - (size_t)offset;
        n_front = n_front < n_bytes ? n_front : n_bytes;
        memcpy(buf, header + offset, n_front);
        offset = n_header;
    }
    const ssize_t n =
        n_front == n_bytes
            ? 0
            : wfs_tensor_read(&tensor, offset - n_header, (char *)buf + n_front, n_bytes - n_front);
    return n < 0 ? n : (ssize_t)n_front + n;
}

ssize_t wfs_node_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                      void *buf, size_t n_bytes)
{
    if (node->kind == NODE_DIR)
        return -EISDIR;
    n_bytes = n_bytes < SSIZE_MAX ? n_bytes : SSIZE_MAX;
    if (edit_is_staged(node))
        return read_staged(tree, node->edit, offset, buf, n_bytes);
    if (node->kind == NODE_VALUE)
        return valuefile_read(tree, node, offset, buf, n_bytes);
    if (node->kind != NODE_FILE)
        return control_read(tree, node, offset, buf, n_bytes);
    if (is_framed(tree, node))
        return read_framed(node, offset, buf, n_bytes);
    return wfs_tensor_read(node->tensor, offset, buf, n_bytes);
}

void wfs_node_read_ahead(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset)
{
    if (node->kind != NODE_FILE || edit_is_staged(node))
        return;
    const struct wfs_tensor tensor = content_tensor(node);
    const uint64_t n_header = header_n_bytes(tree, node);
    if (offset >= n_header)
        wfs_tensor_read_ahead(&tensor, offset - n_header);
}
