/* SPDX-License-Identifier: MIT */
/*
 * Tensors of a catalog that are the same view of the same bytes share a node.
 */
#ifndef WFS_TREE_TIES_H
#define WFS_TREE_TIES_H

#include "tree/node/node.h"

struct ties {
    bool is_needed; /* some two tensors may be tied */
    struct map map;
    struct wfs_node **nodes; /* malloc'ed */
    uint32_t n_nodes;
};

/* Finds out whether any tensors may be tied. -ENOMEM. */
int ties_init(struct ties *ties, const struct wfs_catalog *catalog);

/* Returns the node with the same view, or NULL. */
struct wfs_node *ties_find(const struct ties *ties, const struct wfs_tensor *tensor);

/* Adds a node; there is room for as many as the catalog has tensors. -ENOMEM. */
int ties_add(struct ties *ties, struct wfs_node *node);
void ties_done(struct ties *ties);

#endif
