/* SPDX-License-Identifier: MIT */
/*
 * Ties between tensors: compared, and hashed so that the equal ones are found.
 */
#include "tensor/tied.h"

#include <string.h>

#include "base/hash.h"

static bool are_same_strides(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const uint64_t *of_a = a->stored.strides, *of_b = b->stored.strides;
    if (of_a == NULL || of_b == NULL)
        return of_a == of_b;
    return memcmp(of_a, of_b, a->shape.rank * sizeof(*of_a)) == 0;
}

bool tied_are_same(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const struct wfs_stored *x = &a->stored, *y = &b->stored;
    if (a->n_bytes == 0 || x->source == NULL || a->trouble != NULL || b->trouble != NULL)
        return false;
    if (x->source != y->source || x->offset != y->offset || x->dtype != y->dtype ||
        a->n_bytes != b->n_bytes || a->dtype != b->dtype || a->shape.rank != b->shape.rank ||
        x->is_big_endian != y->is_big_endian || x->is_conjugate != y->is_conjugate ||
        x->is_negative != y->is_negative)
        return false;
    return (a->shape.rank == 0 ||
            memcmp(a->shape.dims, b->shape.dims, a->shape.rank * sizeof(*a->shape.dims)) == 0) &&
           are_same_strides(a, b);
}

uint64_t tied_hash(const struct wfs_tensor *tensor)
{
    const struct {
        const struct source *source;
        uint64_t offset, n_bytes, dtype, rank;
    } place = {tensor->stored.source, tensor->stored.offset, tensor->n_bytes, tensor->dtype,
               tensor->shape.rank};
    uint64_t hash = hash_bytes(&place, sizeof(place), hash_seed());
    if (tensor->shape.rank > 0)
        hash = hash_bytes(tensor->shape.dims, tensor->shape.rank * sizeof(uint64_t), hash);
    if (tensor->shape.rank > 0 && tensor->stored.strides != NULL)
        hash = hash_bytes(tensor->stored.strides, tensor->shape.rank * sizeof(uint64_t), hash);
    return hash;
}
