/* SPDX-License-Identifier: MIT */
/*
 * Inside of the PyTorch writer: the places of what was loaded, and where everything in them goes. A
 * dict whose content has all moved to another name is renamed itself; otherwise its items are
 * renamed, moved or taken out one by one.
 */
#ifndef WFS_TORCH_EDIT_H
#define WFS_TORCH_EDIT_H

#include "format/pytorch_write.h"

/* Numbered as places are; behind them come things without a place. 0 stands for none. */
struct edit_node {
    const char *to; /* the name that it has in the end, n_to bytes of this */
    uint32_t n_to;
    uint32_t claim;               /* 1 + tensor or value that is here; 0: a container, or removed */
    uint32_t parent;              /* in the end */
    uint32_t first, last, next;   /* in the end: what is in it, in order */
    uint32_t old_first, old_next; /* as loaded, last one first */
    uint32_t key;                 /* value: its new key in the dict; 0: as it was */
    uint32_t id;                  /* value: what is here in the end */
    uint8_t kind;                 /* enum place_kind */
    bool has_vote, stays;         /* of a container: to is a wish; something in it stays */
    bool is_gone;                 /* no longer an item of what it was in */
    bool is_alive;                /* of a container: something is in it in the end */
};

struct torch_edit {
    struct torch_plan *plan;
    const struct wfs_catalog *catalog;
    const struct catalog_place *places; /* the catalog's */
    struct edit_node *nodes;            /* malloc'ed */
    uint32_t n_nodes, n_places;
    uint32_t root, end; /* the place that all is in, and the last one in it */
    uint32_t *walk;     /* malloc'ed: nodes in the order in which a loader will list them */
    uint32_t n_walk;
    struct map takers;   /* containers that can take more items, by their name */
    struct map by_value; /* places, by the value that was there: the first of each */
    uint32_t *n_same;    /* malloc'ed: of the first place of a value, how many there are */
};

/* ---- torch_names.c ---- */

/* Decides what is renamed, moved, removed and added, and in which order all is in the end. -EINVAL
 * names what has no place. */
int torch_edit_names(struct torch_edit *edit);

/* The first place with the same value, and how often the value has a place. */
uint32_t torch_edit_first(const struct torch_edit *edit, uint32_t place, uint32_t *ret_n);

/* ---- torch_change.c ---- */

/* Values of all nodes that are tensors: as they were, or made anew where the tensor has changed. */
int torch_edit_tensors(struct torch_edit *edit);

/* ---- torch_rebuild.c ---- */

/* Containers, from the inside to the outside: sets the root of the plan. */
int torch_edit_containers(struct torch_edit *edit);

#endif
