/* SPDX-License-Identifier: MIT */
/*
 * A catalog as the tree of a record: names are cut at their dots, and what only has numbers below
 * it is a list. What comes from a record keeps its order.
 */
#ifndef WFS_RECORD_OUTLINE_H
#define WFS_RECORD_OUTLINE_H

#include "base/hash.h"
#include "tensor/catalog.h"

/* Numbers of nodes are from 1; 0: none. */
struct outline_node {
    const char *name; /* the first n_name bytes of this: one component */
    uint32_t n_name;
    uint32_t parent, first, last, next, n_children;
    const struct wfs_tensor *tensor; /* leaf */
    uint32_t value;                  /* leaf: in the graph of the catalog */
    bool is_list;
};

struct record_outline {
    const struct wfs_catalog *catalog;
    bool is_record;             /* the catalog comes from one */
    struct outline_node *nodes; /* malloc'ed; [1] is the root */
    size_t n_nodes, n_room;
    struct map by_name;
};

/* -EINVAL: two things have one place, a list has a gap, or something else than a tensor would be
 * read as one; -E2BIG, -ENOMEM. record_outline_done is due in any case. */
int record_outline_make(struct record_outline *outline, const struct wfs_catalog *catalog,
                        bool is_record, struct wfs_error *err);
void record_outline_done(struct record_outline *outline);

/* Returns whether the tensor is written as a parameter, with an id. In a record, what had no id was
 * none. Everywhere else tensors are parameters, but for the state of an optimizer. */
bool record_outline_is_parameter(const struct record_outline *outline,
                                 const struct wfs_tensor *tensor);

/* Returns the child that the name leads to, 0: none. */
uint32_t record_outline_child(const struct record_outline *outline, uint32_t parent,
                              const char *name, size_t n_bytes);

#endif
