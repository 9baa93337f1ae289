/* SPDX-License-Identifier: MIT */
/*
 * The stack machine of the pickle reader: its state, its input, its stack and its memo; and what
 * its parts do: pickle_scalars the opcodes that push numbers and texts, pickle_fold objects that
 * become records. The other opcodes and the loop are in pickle_reader.
 */
#ifndef WFS_PICKLE_VM_H
#define WFS_PICKLE_VM_H

#include "base/stream.h"
#include "pickle/pickle.h"

/*
 * Taking back the values of objects that were folded. What is certain is taken back: an object was
 * folded, nothing made since it was begun has a number in the memo that is used later, and nothing
 * older was changed since.
 */

enum argument_kind {
    ARGUMENT_NUMBER, /* of n_bytes, at most 8; none if that is 0 */
    ARGUMENT_LENGTH, /* a number, and then as many bytes */
    ARGUMENT_LINE,
    ARGUMENT_LINES,   /* two of them */
    ARGUMENT_GET,     /* the number of an entry of the memo */
    ARGUMENT_BY_HAND, /* the same where the pickle numbers the entries: in a line if n_bytes is 0 */
    ARGUMENT_MEMO,    /* none; an entry of the memo gets the next number */
    ARGUMENT_STOP,    /* none; the pickle ends */
};

struct pickle;

struct pickle_opcode {
    int (*apply)(struct pickle *p); /* after the number or the line was read; NULL: no opcode */
    uint8_t kind, n_bytes;
};

/* Returns the number in at most 8 bytes. */
static inline uint64_t pickle_number(const uint8_t *bytes, size_t n_bytes)
{
    uint64_t number = 0;
    for (size_t i = n_bytes; i-- > 0;)
        number = number << 8 | bytes[i];
    return number;
}

enum { ROOM_OPEN_MAX = 32 };

/* An object that was begun and has no state yet. */
struct room_mark {
    uint32_t id;
    bool is_spoiled; /* something older was changed since */
    uint32_t *cells; /* of the graph, when it was begun */
    uint32_t n_cells;
};

/* A zeroed struct takes nothing back. */
struct pickle_room {
    uint8_t *used;   /* malloc'ed: a bit for each number of the memo, set if it is fetched; NULL:
                        not known */
    uint32_t n_used; /* bits */
    uint32_t n_memo; /* numbers that were given so far */
    uint32_t held;   /* values up to this one may be used later */
    struct room_mark open[ROOM_OPEN_MAX];
    size_t n_open;
};

/*
 * Reads the opcodes of a pickle for the numbers of the memo that it fetches. A pickle that numbers
 * its memo by hand, or is damaged, leaves the struct zeroed. -ENOMEM.
 */
int room_scan(struct pickle_room *room, const struct pickle_job *job,
              const struct pickle_opcode *opcodes);
void room_done(struct pickle_room *room);

/* An object was begun. */
void room_begin(struct pickle_room *room, const struct graph *graph, uint32_t id);

/* A value was changed. */
static inline void room_change(struct pickle_room *room, uint32_t id)
{
    for (size_t i = room->n_open; i-- > 0 && room->open[i].id > id;)
        room->open[i].is_spoiled = true;
}

/* A value may be used again, whatever becomes of what it was made for. */
static inline void room_hold(struct pickle_room *room, uint32_t id)
{
    room->held = room->held < id ? id : room->held;
}

/* Returns whether a number of the memo is fetched later; true where that is not known. */
static inline bool room_is_fetched(const struct pickle_room *room, uint32_t i)
{
    return room->used == NULL || (i < room->n_used && (room->used[i / 8] >> i % 8 & 1) != 0);
}

/* An object was folded: takes back what was made since it was begun, if it can. */
void room_end(struct pickle_room *room, struct graph *graph, uint32_t id, bool is_folded);

struct far_slot {
    uint32_t index, id;
};

enum { MEMO_RECENT = 256 };

/*
 * Values by number, so that a pickle can refer to them again. Slots that are numbered densely are
 * in an array; the others are found by hash, or among those that were used last: a few bytes of
 * input must not allocate a table of gigabytes.
 */
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

enum { N_SMALL = 256 };

struct pickle {
    struct graph *graph;
    struct pickle_job *job;
    struct wfs_error *err;
    struct stream input;
    struct memo memo;
    uint32_t *stack;
    size_t n_stack, n_stack_room;
    size_t *marks; /* heights of the stack */
    size_t n_marks, n_mark_room;
    uint32_t none, truth[2], empty; /* constants, once each: None, False and True, () */
    uint32_t small[N_SMALL];        /* integers that are one object each in Python, too */
    uint8_t opcode;
    uint64_t number;        /* the argument of the opcode, or the length of it */
    const char *line;       /* the argument as a line, until the next read of the input */
    size_t n_line;          /* bytes */
    uint64_t opcode_offset; /* from the start of this pickle */
    bool is_done;
    struct pickle_room room;
};

/* Fails with EBADMSG, the place, and this text. */
int vm_fail(struct pickle *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fails with the error that reading the input gave. */
int vm_fail_input(struct pickle *p, int code);

/* Pushes a value. id 0 means that it could not be allocated. */
int vm_push(struct pickle *p, uint32_t id);

/* ---- opcodes; one function for those that differ in the width of their argument ---- */

int op_int_line(struct pickle *p);
int op_long_line(struct pickle *p);
int op_float_line(struct pickle *p);
int op_fixed_int(struct pickle *p);
int op_float(struct pickle *p);
int op_long(struct pickle *p);
int op_string_line(struct pickle *p);
int op_unicode_line(struct pickle *p);
int op_string(struct pickle *p);
int op_text(struct pickle *p);
int op_bytes(struct pickle *p);
int op_persid(struct pickle *p);

/* ---- objects that the job folds ---- */

/* An object of the graph got its state: replaces it by the number of a record, if the job says so.
 * -E2BIG, -ENOMEM. */
int fold_object(struct pickle *p, uint32_t id);

/*
 * The class at the top of the stack was just fetched. Where the input goes on with an object of it
 * that is folded, reads it past the graph and replaces the class by the record; where not, or where
 * anything about it is unusual, nothing happens. -E2BIG, -ENOMEM.
 */
int fold_ahead(struct pickle *p);

#endif
