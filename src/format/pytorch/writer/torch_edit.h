/* SPDX-License-Identifier: MIT */
/*
 * An edit of a loaded checkpoint: its places, and the name and content of each at the end. The
 * steps are those of struct torch_edit's functions below, in their order; the questions about
 * places and names are what the steps share.
 */
#ifndef WFS_TORCH_EDIT_H
#define WFS_TORCH_EDIT_H

#include "base/text_index.h"
#include "format/pytorch/writer/torch_plan.h"

/* Numbered as places are, followed by things without a place. 0: none. */
struct edit_node {
    struct text_slice to;         /* its name at the end */
    uint32_t claim;               /* 1 + tensor or value at this node; 0: a container, or removed */
    uint32_t parent;              /* at the end */
    uint32_t first, last, next;   /* at the end: its children, in order */
    uint32_t old_first, old_next; /* its children as loaded, the last one first */
    uint32_t key;                 /* value: its new key in the dict; 0: unchanged */
    uint32_t id;                  /* value: its content at the end */
    uint32_t versions;            /* value: a table of versions that a dict gets; 0: none */
    uint8_t kind;                 /* enum place_kind */
    bool has_vote, stays;         /* of a container: to is a proposal; something in it stays */
    bool is_gone;                 /* no longer an item of its loaded container */
    bool is_alive;                /* a tensor that stays, or not empty at the end */
    bool has_tensor;              /* a tensor that stays, or contains one */
    bool is_short, is_torn;       /* of an object: some of its tensors are removed; are renamed */
    bool is_apart;                /* taken apart: its children become items of a dict */
    bool is_given_up;             /* a module whose value is removed, or what is in it */
};

struct torch_edit {
    struct torch_plan *plan;
    const struct wfs_catalog *catalog;
    const struct catalog_place *places; /* the catalog's */
    struct edit_node *nodes;            /* malloc'ed */
    uint32_t n_nodes, n_places;
    uint32_t root, end; /* the outermost place, and the last one in it */
    uint32_t shell;     /* node: a new dict around the root or in its place; 0: none */
    uint32_t *walk;     /* malloc'ed: nodes in the order of a later listing */
    uint32_t n_walk;
    struct text_index takers; /* names of containers that can get more items, and */
    uint32_t *taker_nodes;    /* malloc'ed: the first container with each */
    struct map by_name;       /* nodes by their name at the end */
    uint32_t *firsts;         /* malloc'ed: by value, its first place that stays; 0: none */
    uint32_t *n_same;         /* malloc'ed: by first place, how many places its value has */
};

void torch_edit_done(struct torch_edit *edit);

/* Decides what is renamed, moved, removed and added, and the order of everything at the end.
 * -EINVAL names a thing that has no place, -E2BIG, -ENOMEM. */
int torch_edit_places(struct torch_edit *edit);

/* The first steps of that: decides what every container is called, and which objects are taken
 * apart: those that have lost a part, or have one with a name of its own. -EINVAL, -ENOMEM. */
int torch_edit_names(struct torch_edit *edit);
int torch_edit_objects(struct torch_edit *edit);

/* Gives every node that is a tensor its value: the loaded one, changed where the tensor is
 * another one, or a new one. -EOPNOTSUPP, -EINVAL, -ENOMEM. */
int torch_edit_tensors(struct torch_edit *edit);

/* Makes the tables of versions at the end, after everything has its container. -ENOMEM. */
int torch_edit_versions(struct torch_edit *edit);

/* Changes the containers, from the inside to the outside, and sets the root of the plan.
 * -EINVAL, -ENOMEM. */
int torch_edit_containers(struct torch_edit *edit);

/* Returns the function that makes a tensor of a storage, inside of calls that wrap it;
 * WHAT_UNKNOWN: it is not such a tensor. */
enum torch_what torch_edit_maker(const struct torch_plan *plan, uint32_t id);

/* ---- questions ---- */

/* Returns the loaded name of a place. */
struct text_slice edit_name_old(const struct torch_edit *edit, uint32_t place);
bool edit_name_is_same(struct text_slice a, struct text_slice b);

/* Returns whether the name leads into the thing with the name prefix. */
bool edit_name_begins(struct text_slice name, struct text_slice prefix);
uint64_t edit_name_hash(struct text_slice name);

/* Fails with -EINVAL: the thing with that name cannot be in the checkpoint, and why. */
int torch_edit_fail(const struct torch_edit *edit, struct text_slice name, const char *why);

/* Returns the first place with the same value that is not removed, or, where all are, the first; 0:
 * the value cannot be anywhere else. */
static inline uint32_t torch_edit_first(const struct torch_edit *edit, uint32_t place)
{
    return edit->firsts[edit->places[place].id];
}

/* Returns whether several places have the value. */
static inline bool torch_edit_is_shared(const struct torch_edit *edit, uint32_t place)
{
    return edit->n_same[torch_edit_first(edit, place)] > 1;
}

/* Returns whether the name of a place counts. That of a value which cannot be anywhere else counts
 * only when it is new, that of a table of versions never. */
bool torch_edit_is_shown(const struct torch_edit *edit, uint32_t i);

/* Returns whether another node has that name at the end. */
bool torch_edit_is_taken(const struct torch_edit *edit, uint32_t i, struct text_slice name);

/* Returns whether it is a tensor, or made of several that mean nothing without each other. */
bool torch_edit_is_object(const struct torch_edit *edit, uint32_t i);

/* Returns the place that one is directly in: dicts of attributes have no names of their own. 0:
 * none. */
uint32_t torch_edit_holder(const struct torch_edit *edit, uint32_t i);

/* Returns the key, a value, that a place had in a dict; 0: none. */
uint32_t torch_edit_old_key(const struct torch_edit *edit, uint32_t i);

/* Returns the OrderedDict whose table of the versions of modules it is. Such a table is not an
 * item: it belongs to the tensors. 0: it is something else. */
uint32_t torch_edit_version_dict(const struct torch_edit *edit, uint32_t i);

/* Returns whether it is a dict or OrderedDict. */
bool torch_edit_is_dict(const struct torch_edit *edit, uint32_t i);

/* Returns whether it has the name that it gets when nothing but its container is renamed. */
bool torch_edit_is_at_home(const struct torch_edit *edit, uint32_t i);

#endif
