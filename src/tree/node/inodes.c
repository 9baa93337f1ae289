/* SPDX-License-Identifier: MIT */
/*
 * Numbers are hashes of paths, so duplicates are next to impossible unless names are prepared for
 * it. A table of all numbers would cost more than the rest of the tree; one bit for each finds the
 * few that need a closer look.
 */
#include "tree/node/inodes.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_BITS = 1 << 23,
    N_AHEAD = 16, /* nodes whose bits are fetched before they are needed */
};

struct doubts {
    uint64_t *seen; /* a bit for each of some hashes; malloc'ed */
    uint32_t *ids;  /* nodes whose bit another one had before; malloc'ed */
    uint32_t n_ids;
    size_t n_room;
};

uint64_t inodes_of_name(const struct wfs_node *dir, const char *name)
{
    const uint64_t ino = hash_bytes(name, strlen(name), dir->ino) & (INO_MADE - 1);
    return ino < 2 ? ino + 2 : ino;
}

static uint64_t hash_of(const struct wfs_node *node)
{
    return hash_bytes(&node->ino, sizeof(node->ino), hash_seed());
}

static int add_doubt(struct doubts *doubts, uint32_t id)
{
    if (array_reserve(&doubts->ids, sizeof(*doubts->ids), doubts->n_ids, 1, &doubts->n_room) < 0)
        return -ENOMEM;
    doubts->ids[doubts->n_ids++] = id;
    return 0;
}

static int find_doubts(const struct wfs_tree *tree, struct doubts *doubts)
{
    const uint32_t n = tree->nodes.n_items;
    uint64_t bits[N_AHEAD];
    doubts->seen = calloc(N_BITS / 64, sizeof(*doubts->seen));
    if (doubts->seen == NULL)
        return -ENOMEM;
    for (uint32_t id = 1; id <= n + N_AHEAD; id++) {
        uint64_t *bit = &bits[id % N_AHEAD];
        if (id > N_AHEAD) {
            uint64_t *word = &doubts->seen[*bit / 64];
            const uint64_t mask = UINT64_C(1) << *bit % 64;
            if ((*word & mask) != 0 && add_doubt(doubts, id - N_AHEAD) < 0)
                return -ENOMEM;
            *word |= mask;
        }
        if (id <= n) {
            *bit = hash_of(pool_at(&tree->nodes, id)) % N_BITS;
            __builtin_prefetch(&doubts->seen[*bit / 64], 1);
        }
    }
    return 0;
}

struct query {
    const struct wfs_tree *tree;
    const struct wfs_node *node;
};

static bool is_twin(const void *ctx, uint32_t id)
{
    const struct query *query = ctx;
    const struct wfs_node *node = pool_at(&query->tree->nodes, id);
    return node != query->node && node->ino == query->node->ino;
}

/* map ends with the doubts that differ from each other. */
static int settle_doubts(struct wfs_tree *tree, const struct doubts *doubts, struct map *map)
{
    uint32_t twin;
    for (uint32_t i = 0; i < doubts->n_ids; i++) {
        struct wfs_node *node = pool_at(&tree->nodes, doubts->ids[i]);
        const struct query query = {tree, node};
        if (map_find(map, hash_of(node), is_twin, &query, &twin))
            node->ino = node_next_ino(tree);
        else if (map_add(map, hash_of(node), node->id) < 0)
            return -ENOMEM;
    }
    return 0;
}

int inodes_settle(struct wfs_tree *tree)
{
    struct doubts doubts = {0};
    struct map map = {0};
    int code = find_doubts(tree, &doubts);
    if (code == 0)
        code = settle_doubts(tree, &doubts, &map);
    for (uint32_t id = 1; id <= tree->nodes.n_items && code == 0 && map.n_used > 0; id++) {
        const struct query query = {tree, pool_at(&tree->nodes, id)};
        uint32_t twin;
        if (map_find(&map, hash_of(query.node), is_twin, &query, &twin))
            ((struct wfs_node *)pool_at(&tree->nodes, twin))->ino = node_next_ino(tree);
    }
    free(doubts.seen);
    free(doubts.ids);
    map_done(&map);
    return code;
}
