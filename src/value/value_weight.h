/* SPDX-License-Identifier: MIT */
/*
 * How long values are as text. A value that is used many times over appears each time, so that a
 * few bytes of a file can stand for more text than any disk can hold.
 */
#ifndef WFS_VALUE_WEIGHT_H
#define WFS_VALUE_WEIGHT_H

#include "value/value.h"

/* A zeroed struct with a graph has weighed nothing. */
struct weighing {
    const struct graph *graph;
    uint64_t *weights; /* malloc'ed; by value, 0: not known */
    struct weighing_step *steps;
    size_t n_steps, n_step_room;
};

/* Computes about how many bytes of text the value takes, with everything in it as often as it is in
 * it: at most WEIGHT_MAX. Values are weighed once, however often they are used. -ENOMEM. */
int value_weigh(struct weighing *weighing, uint32_t id, uint64_t *ret);
void weighing_done(struct weighing *weighing);

#define WEIGHT_MAX (UINT64_C(1) << 40)

#endif
