/* SPDX-License-Identifier: MIT */
/*
 * The way through a graph: a stack of values that are being listed, and the dotted path to the
 * current one. It decides what can be entered; what the values mean is decided by its users.
 */
#ifndef WFS_TORCH_WALK_H
#define WFS_TORCH_WALK_H

#include "format/pytorch/object/torch.h"
#include "value/value_leaf.h"

enum walk_mode {
    WALK_ITEMS,
    WALK_PAIRS,
    WALK_ARGS,       /* as items, but only those with tensors */
    WALK_BOUND_ARGS, /* the same after the first, which is a class */
    WALK_CALL,
    WALK_MODULE,
    WALK_PARTS,
    WALK_WRAPPER,
};

struct frame {
    uint32_t id;
    uint32_t next;
    size_t n_path; /* of the path to it */
    uint32_t n_components;
    uint32_t place;
    uint32_t whole;                  /* of which its tensors are parts; 0: none */
    const struct value_set *unsaved; /* buffers that state_dict() leaves out; NULL: none */
    const char *role;                /* of the tensors in it, as walk.role */
    enum walk_mode mode;
    bool is_filtered;   /* lists only what has tensors */
    bool is_attributes; /* the attributes of a module: its own dicts are listed before */
};

struct walk {
    struct torch *torch;
    struct graph *graph;
    struct frame *frames;
    uint32_t n_frames;
    size_t n_frame_room;
    uint32_t n_modules; /* among the frames */
    uint32_t item;      /* of the top frame, listed next; PLACE_FIXED: none of its items */
    uint32_t holder;    /* place of the tensor whose parts are listed; 0: that of the top frame */
    uint32_t key;       /* value: the dict key that was added to the path last; 0: another text */
    uint32_t pending;   /* value to be listed under the current path; 0: none */
    const char *role; /* what the next tensor is in a module, if state_dict() does not return it */
    bool is_owned;    /* the module of the top frame owns what is listed next */
    struct strbuf path;
    size_t n_to_nul; /* bytes of the path to the end of an escaped NUL; 0: it has none */
    uint32_t n_components;
    uint64_t n_repeats_left;
    bool is_deep, is_repetitive;
    struct value_set **sets; /* each malloc'ed: modules can share one */
    uint32_t n_sets;
    size_t n_set_room;
    struct map set_numbers; /* by the list of their items */
};

void walk_done(struct walk *walk);

/*
 * Goes into a value: it becomes the top frame, and components in it are added to the current path.
 * Does nothing for a value that the mode cannot step through, one that is open already, one too
 * deep, or one that was listed too often. -ENOMEM.
 */
int walk_enter(struct walk *walk, enum walk_mode mode, uint32_t id);

/* Makes a set of the items of that value, or finds it; NULL when out of memory. */
const struct value_set *walk_set(struct walk *walk, uint32_t items);

/* Leaves the top frame. */
void walk_leave(struct walk *walk);

/* Adds one component to the path; the top frame removes it again. */
void walk_add_name(struct walk *walk, const char *name);
void walk_add_number(struct walk *walk, const char *prefix, uint32_t number);

/* The same for a key of a dict; one that cannot be spelled gets "%key" and a number of its own. */
void walk_add_key(struct walk *walk, uint32_t key);

/* Adds the place of what the path leads to, and returns its number; 0 when out of memory. */
uint32_t walk_add_place(struct walk *walk, uint32_t id, const char *name);

#endif
