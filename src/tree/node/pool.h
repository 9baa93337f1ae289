/* SPDX-License-Identifier: MIT */
/*
 * Many things of one size that stay where they are, with small numbers for names. Numbers begin at
 * 1; what was given back is used again.
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

/* A zeroed item's number, or 0 when out of memory. */
uint32_t pool_take(struct pool *pool);
void pool_give(struct pool *pool, uint32_t id);
void pool_done(struct pool *pool);

#endif
