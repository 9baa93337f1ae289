/* SPDX-License-Identifier: MIT */
/*
 * Items of one size that stay where they are, reached by small numbers. Numbers begin at 1; those
 * of items that were given back are used again. What an item held then is still in it, except for
 * its first 4 bytes: a node leaves its generation there.
 */
#ifndef WFS_TREE_POOL_H
#define WFS_TREE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { POOL_CHUNK_BITS = 10 };

/* {.item_bytes = n} is an empty pool. */
struct pool {
    char **chunks;
    uint32_t n_chunks;
    size_t n_room;       /* of chunks */
    uint32_t item_bytes; /* at least 4 */
    uint32_t n_items;    /* ever taken at the same time */
    uint32_t first_free; /* 0: none */
};

static inline void *pool_at(const struct pool *pool, uint32_t id)
{
    const uint32_t i = id - 1;
    return pool->chunks[i >> POOL_CHUNK_BITS] +
           (uint64_t)(i & ((1u << POOL_CHUNK_BITS) - 1)) * pool->item_bytes;
}

/* Returns the number of an item, or 0 when out of memory. One that was never taken is zeroed. */
uint32_t pool_take(struct pool *pool);

/* Returns true for the number of an item that was taken, also if it was given back since. */
static inline bool pool_has(const struct pool *pool, uint32_t id)
{
    return id != 0 && id <= pool->n_items;
}

void pool_give(struct pool *pool, uint32_t id);
void pool_done(struct pool *pool);

#endif
