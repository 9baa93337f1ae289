/* SPDX-License-Identifier: MIT */
/*
 * A copy takes what it needs from the node, so that it can also run while the tree changes.
 */
#include "tree/staging.h"

#include <weightfs/cleanup.h>
#include <weightfs/interruption.h>

#include <errno.h>
#include <stdlib.h>

#include "base/source.h"
#include "tensor/shape.h"
#include "tree/file/description.h"
#include "tree/file/editfile.h"
#include "tree/frame.h"
#include "tree/stage/stage.h"

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

static int copy_all(const struct copy *copy)
{
    autofree char *buf = malloc(N_PIECE);
    bool is_in_kernel = true;
    if (buf == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0; offset < copy->n_keep;) {
        const uint64_t n_left = copy->n_keep - offset;
        size_t n = n_left < N_COPY ? (size_t)n_left : N_COPY;
        int code = wfs_interruption_check();
        if (code == 0)
            code = is_in_kernel ? copy_in_kernel(copy, offset, &n) : -EOPNOTSUPP;
        if (code == -EOPNOTSUPP) {
            is_in_kernel = offset < copy->n_header; /* after the header it is worth a try */
            n = n_left < N_PIECE ? (size_t)n_left : N_PIECE;
            const ssize_t n_read = frame_read(&copy->tensor, copy->n_header, offset, buf, n);
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
static int allocate(struct datafiles *data, uint64_t number, uint64_t n_keep)
{
    const int code = n_keep == 0 ? 0 : datafiles_allocate(data, number, 0, 0, n_keep);
    return code == -EOPNOTSUPP ? 0 : code;
}

static int run_copy(const struct copy *copy)
{
    const int code = allocate(copy->data, copy->number, copy->n_keep);
    return code < 0 ? code : copy_all(copy);
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

int staging_begin(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep)
{
    struct copy copy;
    if (edit_of(tree, node) == NULL)
        return -ENOMEM;
    if (!tree->options.allows_large && is_blown_up(node, n_keep))
        return -EFBIG;
    int code = begin_copy(tree, node, n_keep, &copy);
    if (code < 0)
        return code;
    code = run_copy(&copy);
    arena_done(&copy.arena);
    if (code == 0)
        return editfile_adopt(tree, node, copy.number, n_keep);
    datafiles_remove(copy.data, copy.number);
    return code;
}

/* ---- without the tree ---- */

struct wfs_stage_job {
    struct copy copy;
    const struct wfs_tensor *base; /* of the node, when the copy began */
    uint64_t version;              /* of its edit; 0: none */
};

static uint64_t version_of(const struct wfs_node *node)
{
    return node->edit == NULL ? 0 : node->edit->version;
}

int wfs_stage_job_new(struct wfs_tree *tree, const struct wfs_node *node, uint64_t n_keep,
                      uint64_t n_new, struct wfs_stage_job **ret)
{
    *ret = NULL;
    if (tree->stage == NULL || node->kind != NODE_FILE || node->tensor == NULL ||
        edit_is_staged(node))
        return 0;
    const uint64_t n_shown = edit_n_bytes(node) + frame_header_n_bytes(tree, node);
    if (n_keep == n_shown || n_new >= n_shown)
        return 0;
    n_keep = n_keep < n_shown ? n_keep : n_shown;
    /* What is refused is refused by the change itself. */
    if (n_keep == 0 || (!tree->options.allows_large && is_blown_up(node, n_keep)))
        return 0;
    struct wfs_stage_job *job = calloc(1, sizeof(*job));
    const int code = job == NULL ? -ENOMEM : begin_copy(tree, node, n_keep, &job->copy);
    if (code < 0) {
        free(job);
        return code;
    }
    job->base = node->tensor;
    job->version = version_of(node);
    *ret = job;
    return 0;
}

int wfs_stage_job_run(struct wfs_stage_job *job)
{
    return run_copy(&job->copy);
}

int wfs_stage_job_end(struct wfs_tree *tree, struct wfs_node *node, struct wfs_stage_job *job,
                      int code)
{
    const bool is_useful = code == 0 && !edit_is_staged(node) && node->tensor == job->base &&
                           version_of(node) == job->version;
    if (is_useful && edit_of(tree, node) == NULL)
        code = -ENOMEM;
    if (is_useful && code == 0) {
        const uint64_t n_shown = edit_n_bytes(node) + frame_header_n_bytes(tree, node);
        code = editfile_adopt(tree, node, job->copy.number, job->copy.n_keep);
        if (code == 0 && job->copy.n_keep < n_shown)
            editfile_touch(tree, node); /* a shorter copy is a change, and all of a truncation */
    } else
        datafiles_remove(&tree->stage->data, job->copy.number);
    arena_done(&job->copy.arena);
    free(job);
    return code;
}
