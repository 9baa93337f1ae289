/* SPDX-License-Identifier: MIT */
/*
 * It has no file: no two of them count as the same bytes. Reading checks the file that the tensor
 * is in.
 */
#include "tensor/shown.h"

#include <errno.h>
#include <stdlib.h>

static int read_shown(const struct source *source, uint64_t offset, void *buf, size_t n_bytes)
{
    const ssize_t n = wfs_tensor_read(source->ctx, offset, buf, n_bytes);
    return n < 0 ? (int)n : (size_t)n < n_bytes ? -EIO : 0;
}

static void free_shown(struct source *source)
{
    free(source->ctx);
}

int shown_source(const struct wfs_tensor *tensor, struct source **out)
{
    struct source *source;
    struct wfs_tensor *copy = malloc(sizeof(*copy));
    if (copy == NULL || source_new_memory("an edit", NULL, 0, &source) < 0) {
        free(copy);
        return -ENOMEM;
    }
    *copy = *tensor;
    source->n_bytes = tensor->n_bytes;
    source->read = read_shown;
    source->done = free_shown;
    source->ctx = copy;
    *out = source;
    return 0;
}
