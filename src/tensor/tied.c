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
    if (of_a == NULL || of_b == NULL || a->shape.rank == 0)
        return of_a == of_b || a->shape.rank == 0;
    return memcmp(of_a, of_b, a->shape.rank * sizeof(*of_a)) == 0;
}

bool tied_are_stored_alike(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const struct wfs_stored *x = &a->stored, *y = &b->stored;
    return x->dtype == y->dtype && x->is_big_endian == y->is_big_endian &&
           x->is_conjugate == y->is_conjugate && x->is_negative == y->is_negative &&
           are_same_strides(a, b);
}

bool tied_are_same(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const struct wfs_stored *x = &a->stored, *y = &b->stored;
    if (a->n_bytes == 0 || x->source == NULL || a->trouble != NULL || b->trouble != NULL)
        return false;
    return x->source == y->source && x->offset == y->offset && a->n_bytes == b->n_bytes &&
           a->dtype == b->dtype && wfs_shape_is_equal(&a->shape, &b->shape) &&
           tied_are_stored_alike(a, b);
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
