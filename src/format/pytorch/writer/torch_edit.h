/* SPDX-License-Identifier: MIT */
/*
 * An edit of a loaded checkpoint: its places, and what each of them is called and holds in the end.
 * These are the questions that all parts of an edit ask; what happens to a place is decided in
 * torch_edit_names, torch_edit_objects and torch_edit_moves.
 */
#ifndef WFS_TORCH_EDIT_H
#define WFS_TORCH_EDIT_H

#include "format/pytorch/writer/torch_plan.h"

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
    bool is_alive;                /* something is in it in the end, or it is a tensor that stays */
    bool has_tensor;              /* it is one that stays, or one is in it */
    bool is_short, is_torn; /* of an object: tensors of it are removed; are called otherwise */
    bool is_apart;          /* what is in it becomes items of a dict, one by one */
};

struct torch_edit {
    struct torch_plan *plan;
    const struct wfs_catalog *catalog;
    const struct catalog_place *places; /* the catalog's */
    struct edit_node *nodes;            /* malloc'ed */
    uint32_t n_nodes, n_places;
    uint32_t root, end; /* the place that all is in, and the last one in it */
    uint32_t shell;     /* node: a new dict around the root or instead of it; 0: none */
    uint32_t *walk;     /* malloc'ed: nodes in the order in which a loader will list them */
    uint32_t n_walk;
    struct map takers;   /* containers that can take more items, by their name */
    struct map by_name;  /* nodes that have a name in the end */
    struct map by_value; /* places, by the value that was there: the first of each */
    uint32_t *n_same;    /* malloc'ed: of the first place of a value, how many there are */
};

void torch_edit_done(struct torch_edit *edit);

struct edit_name {
    const char *bytes;
    size_t n_bytes;
};

/* The name that a place had, and the one that a node has in the end. */
struct edit_name edit_name_old(const struct torch_edit *edit, uint32_t place);
struct edit_name edit_name_end(const struct edit_node *node);
bool edit_name_is_same(struct edit_name a, struct edit_name b);

/* Returns whether the name leads into the thing with the name prefix. */
bool edit_name_begins(struct edit_name name, struct edit_name prefix);
uint64_t edit_name_hash(struct edit_name name);

/* Fails with -EINVAL: the thing with that name cannot be in the checkpoint, and why. */
int torch_edit_fail(const struct torch_edit *edit, struct edit_name name, const char *why);

/* Returns the first place with the same value, and how many places have the value. */
uint32_t torch_edit_first(const struct torch_edit *edit, uint32_t place, uint32_t *ret_n);

/* Returns whether the name of a place counts. That of a value which cannot be anywhere else counts
 * only when it is new. */
bool torch_edit_is_shown(const struct torch_edit *edit, uint32_t i);

/* Returns whether another node has that name in the end. */
bool torch_edit_is_taken(const struct torch_edit *edit, uint32_t i, struct edit_name name);

/* Returns whether the thing that was loaded under that name still has it. */
bool torch_edit_stays(const struct torch_edit *edit, struct edit_name name);

/* Returns whether it is a tensor, or made of several that mean nothing without each other. */
bool torch_edit_is_object(const struct torch_edit *edit, uint32_t i);

/* The same, for those made of several. */
bool torch_edit_is_composed(const struct torch_edit *edit, uint32_t i);

/* Returns the place that one is directly in: dicts of attributes have no names of their own. 0:
 * none. */
uint32_t torch_edit_holder(const struct torch_edit *edit, uint32_t i);

/* Returns the key, a value, that a place had in a dict; 0: none. */
uint32_t torch_edit_old_key(const struct torch_edit *edit, uint32_t i);

/* Returns whether it has the name that it gets when nothing but its container is renamed. */
bool torch_edit_is_at_home(const struct torch_edit *edit, uint32_t i);

#endif
