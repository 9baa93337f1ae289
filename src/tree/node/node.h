/* SPDX-License-Identifier: MIT */
/*
 * Inside of the tree: what it is made of, and the entries and nodes that everything else works on.
 *
 * A directory keeps its entries in the order of their sequence numbers, which only grow, so a place
 * in a listing is a number and stays good whatever is made or removed. A removed entry stays as a
 * hole in that order until there are too many of them.
 */
#ifndef WFS_TREE_NODE_H
#define WFS_TREE_NODE_H

#include <stdatomic.h>

#include <weightfs/strbuf.h>
#include <weightfs/tree.h>

#include "base/arena.h"
#include "base/hash.h"
#include "tree/name/key.h"
#include "tree/node/pool.h"

struct edit;
struct wfs_stage;
struct status;
struct texts;
struct digests;
struct metadata;
struct valuefiles;

/* Numbers of nodes that were not in the catalog have this bit, those from its paths have not. */
#define INO_MADE (UINT64_C(1) << 62)

/* Order of an entry that was not in the catalog: behind all others. */
#define ORDER_NEW UINT32_MAX

/* A name in a directory. */
struct entry {
    struct wfs_node *dir;
    struct wfs_node *node; /* NULL: a hole */
    const char *name;
    uint64_t sequence;
    uint32_t order;          /* place in the output: the catalog's, or ORDER_NEW */
    uint32_t next, previous; /* entries of the same node; 0: none */
    bool owns_name, is_indexed;
};

struct directory {
    uint32_t *ids; /* entries by sequence */
    uint32_t n_ids, n_holes;
    size_t n_room;
    _Atomic uint32_t hint; /* where the last listing was; only a guess */
    struct timespec mtime;
};

enum node_kind {
    NODE_DIR,
    NODE_FILE,
    NODE_VALUE,
    NODE_TENSORS,
    NODE_METADATA,
    NODE_STATUS,
    NODE_GIVEN, /* and the numbers behind it: a text of options.texts */
    NODE_MADE = NODE_GIVEN + WFS_TREE_TEXTS_MAX, /* the same for options.made */
};

/* What POSIX calls an inode. */
struct wfs_node {
    uint64_t ino;
    _Atomic uint64_t n_refs;
    union {
        const struct wfs_tensor *tensor; /* what the catalog says of it; NULL: nothing */
        struct directory *directory;
        uint32_t value; /* of the catalog */
    };
    struct edit *edit; /* what is not as the catalog has it; NULL: nothing */
    uint32_t id;       /* in the pool */
    uint32_t entry;    /* the first one; 0: unlinked */
    _Atomic uint32_t n_links;
    uint8_t kind; /* enum node_kind */
};

struct wfs_tree {
    const struct wfs_catalog *catalog;
    struct wfs_tree_options options; /* without its texts */
    struct arena arena;              /* names from the catalog */
    struct pool entries, nodes;
    struct map map;    /* entries by directory and name */
    struct map loaded; /* orders by key; see loaded.h */
    struct key_cuts cuts;
    struct wfs_node *root, *control, *out;
    struct edit *edits;      /* all there are */
    struct wfs_stage *stage; /* NULL: read-only */
    struct status *status;
    struct texts *texts;
    struct digests *digests;
    struct metadata *metadata;
    struct valuefiles *valuefiles;
    struct wfs_replayed replayed;
    bool is_unmade;    /* it could not be made */
    bool is_replaying; /* what the journal says is done again: nothing is noted or removed */
    uint64_t sequence, n_inodes_made;
    uint64_t n_bytes, n_nodes;          /* shown */
    uint64_t n_foreign_bytes;           /* of foreign attributes */
    struct timespec mtime;              /* of what has no other */
    struct timespec changed_at;         /* of the last change */
    _Atomic uint64_t generation;        /* counts changes that a commit shows */
    _Atomic uint64_t committed;         /* the generation that is published */
    _Atomic uint64_t n_commits;         /* that succeeded */
    _Atomic uint64_t n_changed_nodes;   /* since then */
    _Atomic uint64_t n_changed_entries; /* since then */
    _Atomic uint64_t n_unsynced;        /* edits with is_unsynced */
};

static inline struct entry *entry_at(const struct wfs_tree *tree, uint32_t id)
{
    return pool_at(&tree->entries, id);
}

static inline bool node_is_unlinked(const struct wfs_node *node)
{
    return atomic_load_explicit(&node->n_links, memory_order_relaxed) == 0;
}

/* Without a link; ino 0 takes the next one for what was not in the catalog. NULL: no memory. */
struct wfs_node *node_new(struct wfs_tree *tree, enum node_kind kind, uint64_t ino);

/* A number that no node has had. */
uint64_t node_next_ino(struct wfs_tree *tree);

/* True for the files whose content the tree itself makes, which nobody else can change. */
bool node_is_fixed(const struct wfs_node *node);

/* Now, for a change. */
struct timespec node_now(void);

#endif
