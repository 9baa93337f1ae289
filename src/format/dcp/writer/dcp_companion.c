/* SPDX-License-Identifier: MIT */
/*
 * Lightning's meta.pt: the items of the root that came from it go back to it, and not among the
 * leaves. It is copied byte for byte unless something in it changed.
 */
#include "format/dcp/writer/dcp_plan.h"

#include <errno.h>

/* Returns whether a value was in the file. */
static bool is_in(const struct catalog_companion *companion, uint32_t id)
{
    return companion->source != NULL && id >= companion->first && id <= companion->last;
}

bool dcp_companion_has(const struct wfs_catalog *catalog, uint32_t key, uint32_t value)
{
    const struct catalog_companion *companion = &catalog->own->companion;
    return is_in(companion, key) || is_in(companion, value);
}

uint64_t dcp_companion_hash(const struct catalog_companion *companion, const struct graph *graph,
                            uint32_t dict)
{
    const struct value *root = dict == 0 ? NULL : graph_at(graph, dict);
    uint64_t hash = hash_seed();
    for (uint32_t id = companion->first; id <= companion->last; id++) {
        struct value value = *graph_at(graph, id);
        value.marks = value.tag = 0; /* what was found out since */
        hash = hash_bytes(&value, sizeof(value), hash);
    }
    for (uint32_t i = 0; root != NULL && i + 1 < root->n; i += 2) {
        const uint32_t *item = value_items(root) + i;
        if (is_in(companion, item[0]) || is_in(companion, item[1]))
            hash = hash_bytes(item, 2 * sizeof(*item), hash);
    }
    return hash;
}

/* Returns whether a tensor of the file is another one now. */
static bool has_new_tensor(const struct wfs_catalog *catalog)
{
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const struct catalog_place *place = &catalog->values.places[catalog_place(catalog, tensor)];
        if (catalog_place(catalog, tensor) != 0 && is_in(&catalog->own->companion, place->id) &&
            place->stamp != catalog_stamp(tensor))
            return true;
    }
    return false;
}

int dcp_companion_change(struct torch_plan *plan, uint32_t dict, uint32_t *ret)
{
    const struct catalog_companion *companion = &plan->catalog->own->companion;
    const struct value *root = dict == 0 ? NULL : graph_at(&plan->graph, dict);
    *ret = 0;
    if (companion->source == NULL ||
        (dcp_companion_hash(companion, &plan->graph, dict) == companion->hash &&
         !has_new_tensor(plan->catalog)))
        return 0;
    *ret = value_new(&plan->graph, VALUE_DICT);
    for (uint32_t i = 0; *ret != 0 && root != NULL && i + 1 < root->n; i += 2) {
        const uint32_t *item = value_items(root) + i;
        if (dcp_companion_has(plan->catalog, item[0], item[1]) &&
            value_append(&plan->graph, *ret, item, 2) < 0)
            return -ENOMEM;
    }
    return *ret == 0 ? -ENOMEM : 0;
}
