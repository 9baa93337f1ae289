/* SPDX-License-Identifier: MIT */
/*
 * An object that got its state, for a reader that needs a few of its attributes and no graph.
 */
#ifndef WFS_PICKLE_RECORD_H
#define WFS_PICKLE_RECORD_H

#include "value/value.h"

enum record_kind {
    RECORD_NONE,
    RECORD_INTEGER,
    RECORD_TEXT,
    RECORD_NUMBERS, /* a tuple of integers, or a call with one */
    RECORD_OTHER,
};

/* An attribute. What it points to is valid until the next one is asked for. */
struct record_field {
    enum record_kind kind;
    uint32_t n;        /* bytes of a text; integers of a tuple */
    uint32_t callable; /* what is called with the tuple; 0: nothing. Other: perhaps a global */
    union {
        int64_t integer;
        const char *text; /* not ended by NUL */
        const int64_t *numbers;
    };
};

struct pickle_record {
    const struct graph *graph;
    uint32_t object;   /* of the graph; 0: only the rest of the struct is known of it */
    uint32_t callable; /* that made it */
    const struct record_field *pairs; /* name, value, name, value ... */
    uint32_t n_pairs;
    uint64_t n_most;  /* integers of a tuple; one with more is RECORD_OTHER */
    int64_t *numbers; /* malloc'ed, of the last field */
};

void record_done(struct pickle_record *record);

/* Finds an attribute; the last one counts of several. 1, 0: there is none, -ENOMEM. */
int record_find(struct pickle_record *record, const char *name, struct record_field *ret);

/* Looks at a value of the graph as if it were an attribute. -ENOMEM. */
int record_look(struct pickle_record *record, uint32_t id, struct record_field *ret);

#endif
