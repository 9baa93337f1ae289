/* SPDX-License-Identifier: MIT */
/*
 * Digests of what a tensor shows.
 */
#include <weightfs/tensor.h>

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/hash.h"

enum { N_PIECE = 1 << 20 };

static void cleanup_hasher(struct hasher **hasher)
{
    hasher_free(*hasher);
}

int wfs_tensor_digest(const struct wfs_tensor *tensor, uint64_t *ret_digest)
{
    autofree char *piece = malloc(N_PIECE);
    cleanup(cleanup_hasher) struct hasher *hasher = hasher_new();
    if (piece == NULL || hasher == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0; offset < tensor->n_bytes;) {
        const ssize_t n = wfs_tensor_read(tensor, offset, piece, N_PIECE);
        if (n < 0)
            return (int)n;
        hasher_update(hasher, piece, (size_t)n);
        offset += (uint64_t)n;
    }
    *ret_digest = hasher_digest(hasher);
    return 0;
}
