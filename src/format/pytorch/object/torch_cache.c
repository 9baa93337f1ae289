/* SPDX-License-Identifier: MIT */
/*
 * A hash map from values to results.
 */
#include "format/pytorch/object/torch_cache.h"

#include <weightfs/array.h>

#include <stdlib.h>

struct wanted {
    const struct torch_cache_entry *entries;
    uint32_t id;
};

static bool is_wanted(const void *ctx, uint32_t i)
{
    const struct wanted *wanted = ctx;
    return wanted->entries[i].id == wanted->id;
}

static uint64_t hash_id(uint32_t id)
{
    return hash_bytes(&id, sizeof(id), hash_seed());
}

struct torch_cache_entry *torch_cache_find(const struct torch *torch, uint32_t id)
{
    const struct wanted wanted = {torch->cache.entries, id};
    uint32_t i;
    return map_find(&torch->cache.map, hash_id(id), is_wanted, &wanted, &i)
               ? &torch->cache.entries[i]
               : NULL;
}

struct torch_cache_entry *torch_cache_add(struct torch *torch, uint32_t id)
{
    struct torch_cache *made = &torch->cache;
    if (array_reserve(&made->entries, sizeof(*made->entries), made->n_entries, 1, &made->n_room) <
        0)
        return NULL;
    if (map_add(&made->map, hash_id(id), made->n_entries) < 0)
        return NULL;
    struct torch_cache_entry *entry = &made->entries[made->n_entries++];
    *entry = (struct torch_cache_entry){.id = id};
    return entry;
}

void torch_cache_done(struct torch *torch)
{
    free(torch->cache.entries);
    map_done(&torch->cache.map);
    torch->cache = (struct torch_cache){0};
}
