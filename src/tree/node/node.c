/* SPDX-License-Identifier: MIT */
/*
 * Nodes and entries: where they are kept, made, referred to, classified. edit.c frees them.
 */
#include "tree/node/node.h"

#include <weightfs/array.h>
#include <weightfs/strbuf.h>
#include <weightfs/tree.h>
#include "base/arena.h"
#include "base/hash.h"
#include "tree/node/key.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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

uint64_t node_next_ino(struct wfs_tree *tree)
{
    return INO_MADE | ++tree->n_inodes_made;
}

struct wfs_node *node_new(struct wfs_tree *tree, enum node_kind kind, uint64_t ino)
{
    struct directory *directory = NULL;
    if (kind == NODE_DIR && (directory = calloc(1, sizeof(*directory))) == NULL)
        return NULL;
    const uint32_t id = pool_take(&tree->nodes);
    if (id == 0) {
        free(directory);
        return NULL;
    }
    struct wfs_node *node = pool_at(&tree->nodes, id);
    *node = (struct wfs_node){.ino = ino != 0 ? ino : node_next_ino(tree),
                              .id = id,
                              .kind = (uint8_t)kind,
                              .generation = node->generation};
    if (directory != NULL) {
        directory->mtime = tree->mtime;
        node->directory = directory;
        node->n_links = 2;
    }
    tree->n_nodes++;
    return node;
}

/* The root is the first node of all, so its number is 1. */
uint64_t wfs_node_number(const struct wfs_node *node)
{
    return (uint64_t)node->generation << 32 | node->id;
}

struct wfs_node *wfs_tree_node(const struct wfs_tree *tree, uint64_t number)
{
    if ((uint32_t)number == 0 || (uint32_t)number > tree->nodes.n_items)
        return NULL;
    struct wfs_node *node = pool_at(&tree->nodes, (uint32_t)number);
    if (node->id == 0)
        return NULL;
    return node_is_fixed(node) || wfs_node_number(node) == number ? node : NULL;
}

bool wfs_node_is_control(const struct wfs_tree *tree, const struct wfs_node *node)
{
    if (node == tree->control)
        return true;
    const struct wfs_node *dir = node->entry == 0 ? NULL : entry_at(tree, node->entry)->dir;
    return dir != NULL && (dir == tree->control || dir == tree->out);
}

bool node_is_fixed(const struct wfs_node *node)
{
    return node->kind == NODE_TENSORS || node->kind == NODE_STATUS || node->kind >= NODE_GIVEN;
}

struct timespec node_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now;
}

struct wfs_node *wfs_node_parent(const struct wfs_tree *tree, const struct wfs_node *node)
{
    if (node == tree->root)
        return tree->root;
    return node->entry == 0 ? NULL : entry_at(tree, node->entry)->dir;
}

void wfs_node_ref(struct wfs_node *node, uint64_t n)
{
    atomic_fetch_add(&node->n_refs, n);
}

bool wfs_node_unref(struct wfs_node *node, uint64_t n)
{
    return atomic_fetch_sub(&node->n_refs, n) == n && node_is_unlinked(node);
}

bool wfs_node_is_dir(const struct wfs_node *node)
{
    return node->kind == NODE_DIR;
}
