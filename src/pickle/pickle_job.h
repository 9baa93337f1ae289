/* SPDX-License-Identifier: MIT */
/*
 * A pickle that is to be read: where it is, what it may use, and what was odd about it.
 */
#ifndef WFS_PICKLE_JOB_H
#define WFS_PICKLE_JOB_H

#include "base/limits.h"
#include "base/source.h"
#include "value/value.h"

/* Oddities that do not stop the reading, and two reasons for which it stopped. */
enum pickle_note {
    PICKLE_LEFTOVERS = 1 << 0, /* more than one value was left on the stack */
    PICKLE_EXTENSION = 1 << 1, /* names something by a number of a private registry */
    PICKLE_BAD_TEXT = 1 << 2,  /* text that is not UTF-8 */
    PICKLE_SHORT = 1 << 3,     /* failed because the input ended */
    PICKLE_BUDGET = 1 << 4,    /* failed because the budget was used up */
    PICKLE_TEXT_ID = 1 << 5,   /* persistent ids are texts, which PyTorch cannot read back */
    PICKLE_LATIN1 = 1 << 6,    /* str of Python 2 that Python 3 reads with the encoding latin1 */
};

/* What is left for all pickles of a file together. */
struct pickle_budget {
    uint64_t n_bytes; /* of opcodes and arguments, without bytes objects, which stay in the file */
    uint64_t n_opcodes;
};

struct pickle_record;

/*
 * Called when an object has got its state: the reader of many small ones can note what it needs and
 * take their place in the graph. 1: the object becomes VALUE_RECORD with the number *ret, and what
 * was made for it alone is gone; 0: it stays as it is; -ENOMEM; -E2BIG: a limit is reached.
 */
typedef int (*pickle_fold)(void *ctx, struct graph *graph, struct pickle_record *record,
                           uint32_t *ret);

struct pickle_job {
    struct graph *graph;
    const struct limits *limits;
    struct pickle_budget *budget;
    const struct source *source;
    uint64_t offset;  /* of the first opcode; afterwards of the first byte after STOP */
    uint64_t end;     /* where the input ends at the latest */
    unsigned notes;   /* enum pickle_note; added to */
    pickle_fold fold; /* NULL: all objects stay */
    void *fold_ctx;
};

#endif
