/* SPDX-License-Identifier: MIT */
/*
 * Most files hold their tensors one after the other. Offsets that only grow mean that nothing is
 * tied, and then no table is made.
 */
#include "tree/node/ties.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tied.h"

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
    return tied_are_same(query->ties->nodes[id]->tensor, query->tensor);
}

struct wfs_node *ties_find(const struct ties *ties, const struct wfs_tensor *tensor)
{
    const struct query query = {ties, tensor};
    uint32_t id;
    if (!ties->is_needed || tensor->n_bytes == 0 ||
        !map_find(&ties->map, tied_hash(tensor), is_match, &query, &id))
        return NULL;
    return ties->nodes[id];
}

int ties_add(struct ties *ties, struct wfs_node *node)
{
    if (!ties->is_needed)
        return 0;
    ties->nodes[ties->n_nodes] = node;
    return map_add(&ties->map, tied_hash(node->tensor), ties->n_nodes++);
}

void ties_done(struct ties *ties)
{
    map_done(&ties->map);
    free(ties->nodes);
    *ties = (struct ties){0};
}
