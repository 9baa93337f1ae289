/* SPDX-License-Identifier: MIT */
/*
 * Chunks of 1024 items. A free item holds the number of the next free one.
 */
#include "tree/node/pool.h"

#include <weightfs/array.h>

#include <stdlib.h>
#include <string.h>

static bool add_chunk(struct pool *pool)
{
    if (array_reserve(&pool->chunks, sizeof(*pool->chunks), pool->n_chunks, 1, &pool->n_room) < 0)
        return false;
    pool->chunks[pool->n_chunks] = calloc(1u << POOL_CHUNK_BITS, pool->item_bytes);
    if (pool->chunks[pool->n_chunks] == NULL)
        return false;
    pool->n_chunks++;
    return true;
}

uint32_t pool_take(struct pool *pool)
{
    uint32_t id = pool->first_free;
    if (id != 0) {
        memcpy(&pool->first_free, pool_at(pool, id), sizeof(id));
    } else {
        if (pool->n_items == pool->n_chunks << POOL_CHUNK_BITS &&
            (pool->n_items >= UINT32_MAX - (1u << POOL_CHUNK_BITS) || !add_chunk(pool)))
            return 0;
        id = ++pool->n_items;
    }
    return id;
}

void pool_give(struct pool *pool, uint32_t id)
{
    memcpy(pool_at(pool, id), &pool->first_free, sizeof(id));
    pool->first_free = id;
}

void pool_done(struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_chunks; i++)
        free(pool->chunks[i]);
    free(pool->chunks);
    *pool = (struct pool){.item_bytes = pool->item_bytes};
}
