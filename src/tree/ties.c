/* SPDX-License-Identifier: MIT */
/*
 * Most files hold their tensors one behind the other; offsets that only grow tell that nothing is
 * tied, and no table is made.
 */
#include "tree/ties.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool are_same_strides(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const uint64_t *of_a = a->stored.strides, *of_b = b->stored.strides;
    if (of_a == NULL || of_b == NULL)
        return of_a == of_b;
    return memcmp(of_a, of_b, a->shape.rank * sizeof(*of_a)) == 0;
}

bool ties_are_same(const struct wfs_tensor *a, const struct wfs_tensor *b)
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

int ties_init(struct ties *ties, const struct wfs_catalog *catalog)
{
    const size_t n = wfs_catalog_n_tensors(catalog);
    const struct wfs_stored *before = NULL;
    *ties = (struct ties){0};
    for (size_t i = 0; i < n && !ties->is_needed; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        if (tensor->n_bytes == 0)
            continue;
        /* A source that comes back after another one could repeat what it had. */
        ties->is_needed = before != NULL && (before->source != tensor->stored.source ||
                                             before->offset >= tensor->stored.offset);
        before = &tensor->stored;
    }
    if (!ties->is_needed)
        return 0;
    ties->nodes = calloc(n, sizeof(struct wfs_node *));
    return ties->nodes == NULL || map_reserve(&ties->map, (uint32_t)n) < 0 ? -ENOMEM : 0;
}

struct query {
    const struct ties *ties;
    const struct wfs_tensor *tensor;
};

static bool is_match(const void *ctx, uint32_t id)
{
    const struct query *query = ctx;
    return ties_are_same(query->ties->nodes[id]->tensor, query->tensor);
}

static uint64_t view_hash(const struct wfs_tensor *tensor)
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

struct wfs_node *ties_find(const struct ties *ties, const struct wfs_tensor *tensor)
{
    const struct query query = {ties, tensor};
    uint32_t id;
    if (!ties->is_needed || tensor->n_bytes == 0 ||
        !map_find(&ties->map, view_hash(tensor), is_match, &query, &id))
        return NULL;
    return ties->nodes[id];
}

int ties_add(struct ties *ties, struct wfs_node *node)
{
    if (!ties->is_needed)
        return 0;
    ties->nodes[ties->n_nodes] = node;
    return map_add(&ties->map, view_hash(node->tensor), ties->n_nodes++);
}

void ties_done(struct ties *ties)
{
    map_done(&ties->map);
    free(ties->nodes);
    *ties = (struct ties){0};
}
