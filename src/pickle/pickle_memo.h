/* SPDX-License-Identifier: MIT */
/*
 * The memo of the pickle reader: values by number, so that a pickle can refer to them again.
 */
#ifndef WFS_PICKLE_MEMO_H
#define WFS_PICKLE_MEMO_H

#include "base/hash.h"

struct far_slot {
    uint32_t index, id;
};

enum { MEMO_RECENT = 256 };

/* Slots that are numbered densely are in an array; the others are found by hash, or among those
 * that were used last. */
struct memo {
    uint32_t *near;
    size_t n_room;
    uint32_t n_used; /* in both */
    struct map map;  /* of far */
    struct far_slot *far;
    uint32_t n_far;
    size_t n_far_room;
    struct far_slot recent[MEMO_RECENT]; /* by the index; id 0: free */
};

/* Sets a slot. -ENOMEM. */
int memo_put(struct memo *memo, uint32_t index, uint32_t id);

/* Returns 0 when the slot was never set. */
uint32_t memo_get(struct memo *memo, uint32_t index);
void memo_done(struct memo *memo);

#endif
