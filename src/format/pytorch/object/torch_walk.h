/* SPDX-License-Identifier: MIT */
/*
 * Inside of the walk over a graph: its stack, and the rules for objects (torch_object.c).
 */
#ifndef WFS_TORCH_WALK_H
#define WFS_TORCH_WALK_H

#include "format/pytorch/object/torch.h"
#include "value/value_text.h"

enum walk_mode {
    WALK_ITEMS,
    WALK_PAIRS,
    WALK_ARGS, /* as items, but only those with tensors */
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
    uint32_t whole;   /* what its tensors are parts of; 0: nothing */
    uint32_t dropped; /* a set of keys to leave out; 0: none */
    enum walk_mode mode;
    bool is_filtered; /* only what has tensors, and is not dropped */
};

struct walk {
    struct torch *torch;
    struct graph *graph;
    struct frame *frames;
    uint32_t n_frames, n_frame_room;
    uint32_t n_modules; /* among the frames */
    uint32_t item;      /* of the frame on top that is visited next, or PLACE_FIXED */
    uint32_t holder;    /* place of a tensor that is gone into; 0: that of the frame on top */
    uint32_t key;       /* that was added to the path last; 0: it was another text */
    struct text path;
    uint32_t n_components;
    uint64_t n_repeats_left;
    bool is_deep, is_repetitive;
};

/* ---- torch_walk.c ---- */

/* Lists a value under the present path: now, or by going into it. */
int walk_visit(struct walk *walk, uint32_t id);
int walk_enter(struct walk *walk, enum walk_mode mode, uint32_t id);

/* Components. */
void walk_name(struct walk *walk, const char *name);
void walk_number(struct walk *walk, const char *prefix, uint32_t number);

/* ---- torch_object.c: each step does one thing and returns 0, or 1 when there is nothing left ----
 */

int walk_step_call(struct walk *walk, struct frame *frame);
int walk_step_module(struct walk *walk, struct frame *frame);
int walk_step_wrapper(struct walk *walk, struct frame *frame);

/* Is it an nn.Module, by the look of its state? */
bool walk_is_module(const struct walk *walk, const struct value *call);

/* Is it a tensor whose content is other tensors, held by its state? */
bool walk_is_wrapper(const struct walk *walk, const struct value *call);

/* A buffer that state_dict() leaves out. */
bool walk_is_dropped(const struct walk *walk, const struct frame *frame, uint32_t key);

/* Goes into what BUILD gave to an object: its attributes, under the present path. */
int walk_state(struct walk *walk, uint32_t state);

#endif
