/* SPDX-License-Identifier: MIT */
/*
 * The pickle room: it knows every opcode of Python's pickle protocols 0 to 5, and turns a stream of
 * them into a graph of values and back. Nothing is executed: a call is kept as a call. What a name
 * or a call means is left to the formats.
 *
 * This header reads one pickle: where it is, what it may use, and what was odd about it.
 */
#ifndef WFS_PICKLE_H
#define WFS_PICKLE_H

#include <weightfs/error.h>
#include "base/limits.h"
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

struct pickle_budget pickle_budget_of(const struct limits *limits);

enum record_kind {
    RECORD_NONE,
    RECORD_INTEGER,
    RECORD_TEXT,
    RECORD_NUMBERS, /* a tuple of integers, or a call with one */
    RECORD_OTHER,
};

/* An attribute of an object. What it points to is valid until the next one is asked for. */
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

/* An object that got its state, for a reader that needs a few of its attributes and no graph. */
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

/* Reads the pickle, and adds its values to the graph. -EBADMSG, -E2BIG, -EOPNOTSUPP, -EIO,
 * -ENOMEM. */
int pickle_load(struct pickle_job *job, uint32_t *ret_root, struct wfs_error *err);

/* Returns whether the first bytes of a file of n_bytes look like a pickle. */
bool pickle_probe(const void *head, size_t n_head, uint64_t n_bytes);

#endif
