/* SPDX-License-Identifier: MIT */
/*
 * Python's pickle as data: one stream of opcodes becomes a graph of values. Every opcode of
 * protocols 0 to 5 is known, none of them runs anything: what a pickle would call is kept as a
 * call.
 */
#ifndef WFS_PICKLE_H
#define WFS_PICKLE_H

#include "base/source.h"
#include "base/limits.h"
#include "value/value.h"

/* Oddities that do not stop the reading. */
enum pickle_note {
    PICKLE_LEFTOVERS = 1 << 0, /* more than one value was left on the stack */
    PICKLE_EXTENSION = 1 << 1, /* names something by a number that only a program knows */
    PICKLE_BAD_TEXT = 1 << 2,  /* text that is not UTF-8 */
    PICKLE_SHORT = 1 << 3,     /* failed because the input ended */
    PICKLE_BUDGET = 1 << 4,    /* failed because the budget was used up */
    PICKLE_TEXT_ID = 1 << 5,   /* persistent ids are texts, which PyTorch cannot read back */
};

/* What is left for all pickles of a file together. */
struct pickle_budget {
    uint64_t
        n_bytes; /* of opcodes and their arguments, but for bytes objects, which stay in the file */
    uint64_t n_opcodes;
};

struct pickle_job {
    struct graph *graph;
    const struct limits *limits;
    struct pickle_budget *budget;
    const struct source *source;
    uint64_t offset; /* of the first opcode; afterwards of what follows STOP */
    uint64_t end;    /* where the input ends at the latest */
    unsigned notes;  /* enum pickle_note; added to */
};

struct pickle_budget pickle_budget_of(const struct limits *limits);

/* -EBADMSG, -E2BIG, -EOPNOTSUPP, -EIO, -ENOMEM. */
int pickle_load(struct pickle_job *job, uint32_t *ret_root, struct wfs_error *err);

/* Do these first bytes of a file of n_bytes read like a pickle? */
bool pickle_probe(const void *head, size_t n_head, uint64_t n_bytes);

#endif
