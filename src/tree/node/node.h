/* SPDX-License-Identifier: MIT */
/*
 * The parts of a tree: entries, nodes and the tree itself.
 *
 * A directory keeps its entries in the order of their sequence numbers, which only grow, so a place
 * in a listing is a number that stays valid whatever is made or removed. A removed entry stays as a
 * hole in that order until there are too many of them.
 *
 * The room src/tree/node knows names, links, edits and their records in the journal. It leaves what
 * is in a file to those above.
 */
#ifndef WFS_TREE_NODE_H
#define WFS_TREE_NODE_H

#include <weightfs/strbuf.h>
#include <weightfs/tree.h>
#include "base/arena.h"
#include "base/hash.h"
#include "tree/node/key.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Items of one size that stay where they are, in chunks, reached by small numbers. Numbers begin at
 * 1; those of items that were given back are used again. What an item held then is still in it,
 * except for its first 4 bytes: a node leaves its generation there.
 */
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

void pool_give(struct pool *pool, uint32_t id);
void pool_done(struct pool *pool);

struct edit;
struct wfs_stage;
struct texts;
struct generated;
struct digests;
struct valuefiles;

enum {
    NODES_MAX = 4000000, /* a bound on memory: each takes about 100 bytes */
    NODE_GENERATIONS = 1 << 24,
};

/* A bit of the inode numbers of nodes that were not in the catalog; those of its paths lack it. */
#define INO_MADE (UINT64_C(1) << 62)

/* The order of an entry that was not in the catalog: after all others. */
#define ORDER_NEW UINT32_MAX

/* A name in a directory. */
struct entry {
    struct wfs_node *dir;
    struct wfs_node *node; /* NULL: a hole */
    const char *name;
    uint64_t sequence;
    uint32_t order;          /* place in the output: that in the catalog, or ORDER_NEW */
    uint32_t next, previous; /* entries of the same node; 0: none */
    bool owns_name, is_indexed;
};

struct directory {
    uint32_t *ids; /* entries by sequence */
    uint32_t n_ids, n_holes;
    size_t n_room;
    _Atomic uint32_t hint; /* where the last listing was: a guess */
    struct timespec mtime;
    struct timespec ctime; /* 0: nothing has changed */
};

enum node_kind {
    NODE_DIR,
    NODE_FILE,
    NODE_VALUE,
    NODE_TENSORS,
    NODE_METADATA,
    NODE_STATUS,
    NODE_GIVEN, /* and the numbers that follow: a text of options.texts */
    NODE_MADE = NODE_GIVEN + WFS_TREE_TEXTS_MAX, /* the same for options.made */
};

/* What POSIX calls an inode. */
struct wfs_node {
    uint64_t ino;
    _Atomic uint64_t n_refs;
    union {
        const struct wfs_tensor *tensor; /* that of the catalog; NULL: none */
        struct directory *directory;
        uint32_t value; /* of the catalog */
    };
    struct edit *edit; /* what differs from the catalog; NULL: nothing */
    uint32_t id;       /* in the pool */
    uint32_t entry;    /* the first one; 0: unlinked */
    _Atomic uint32_t n_links;
    uint32_t kind : 7;        /* enum node_kind */
    uint32_t is_loaded : 1;   /* it was made with the tree: see node_loaded */
    uint32_t generation : 24; /* how many nodes had this place in the pool before */
};

struct wfs_tree {
    const struct wfs_catalog *catalog;
    struct wfs_tree_options options; /* without its texts */
    struct arena arena;              /* names from the catalog */
    struct pool entries, nodes;
    struct map map;    /* entries by directory and name */
    struct map loaded; /* orders by key, made with the first new file */
    struct key_cuts cuts;
    struct wfs_node *root, *control, *out;
    struct edit *edits;      /* all there are */
    struct wfs_stage *stage; /* NULL: read-only */
    struct texts *texts;
    struct generated *generated;
    struct digests *digests;
    struct valuefiles *valuefiles;
    struct wfs_change *change; /* makes its copies by itself; NULL: they are made at once */
    struct wfs_replayed replayed;
    bool is_unmade;    /* wfs_tree_new failed */
    bool is_discarded; /* its edits have left the stage: it takes no more */
    bool is_replaying; /* changes of the journal are made again: nothing is noted or removed */
    uint64_t sequence, n_inodes_made;
    uint64_t n_bytes, n_nodes;          /* shown */
    uint64_t n_foreign_bytes;           /* of foreign attributes */
    struct timespec mtime;              /* of nodes without one of their own */
    struct timespec changed_at;         /* of the last change */
    _Atomic uint64_t generation;        /* counts changes that a commit shows */
    _Atomic uint64_t committed;         /* the generation that is published */
    _Atomic uint64_t n_commits;         /* that succeeded */
    _Atomic uint64_t n_changed_nodes;   /* since then */
    _Atomic uint64_t n_changed_entries; /* since then */
    _Atomic uint64_t n_unsynced;        /* edits with is_unsynced */
};

/* May it be changed? */
static inline bool tree_is_open(const struct wfs_tree *tree)
{
    return tree->stage != NULL && !tree->is_discarded;
}

static inline struct entry *entry_at(const struct wfs_tree *tree, uint32_t id)
{
    return pool_at(&tree->entries, id);
}

static inline bool node_is_unlinked(const struct wfs_node *node)
{
    return atomic_load_explicit(&node->n_links, memory_order_relaxed) == 0;
}

/* Makes a node without a link; ino 0 takes the next number for nodes that were not in the catalog.
 * NULL: no memory. */
struct wfs_node *node_new(struct wfs_tree *tree, enum node_kind kind, uint64_t ino);

/* Returns an inode number that no node has had. */
uint64_t node_next_ino(struct wfs_tree *tree);

/* Returns true for files whose content the tree generates: they cannot be changed. */
bool node_is_fixed(const struct wfs_node *node);

/* Returns the current time. */
struct timespec node_now(void);

static inline bool node_is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

#endif
