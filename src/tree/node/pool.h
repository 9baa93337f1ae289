/* SPDX-License-Identifier: MIT */
/*
 * Items of one size that stay where they are, reached by small numbers. Numbers begin at 1; those
 * of items that were given back are used again.
 */
#ifndef WFS_TREE_POOL_H
#define WFS_TREE_POOL_H

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

/* Returns the number of a zeroed item, or 0 when out of memory. */
uint32_t pool_take(struct pool *pool);
void pool_give(struct pool *pool, uint32_t id);
void pool_done(struct pool *pool);

#endif
