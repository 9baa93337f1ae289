/* SPDX-License-Identifier: MIT */
/*
 * The stack machine of the pickle reader: its state, its input and its stack. What opcodes do is in
 * pickle_numbers, pickle_strings and pickle_objects, and the loop over them in pickle.
 */
#ifndef WFS_PICKLE_VM_H
#define WFS_PICKLE_VM_H

#include "base/stream.h"
#include "pickle/pickle_job.h"
#include "pickle/pickle_memo.h"
#include "pickle/pickle_room.h"
#include <weightfs/error.h>

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
    uint64_t opcode_offset; /* from the start of this pickle */
    bool is_done;
    struct pickle_room room;
};

/* Makes the constants. -ENOMEM. */
int vm_init(struct pickle *p);
void vm_done(struct pickle *p);

/* Fails with EBADMSG, the place, and this text. */
int vm_fail(struct pickle *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fails with the error that reading the input gave. */
int vm_fail_input(struct pickle *p, int code);

/* Fails because an argument of n bytes is longer than what is left. */
int vm_fail_short(struct pickle *p, const char *what, uint64_t n);

/* Reads the argument of the opcode; *ret is valid until the next one. */
int vm_take(struct pickle *p, size_t n_bytes, const uint8_t **ret);
int vm_line(struct pickle *p, const char **ret, size_t *ret_n);

/* Pushes a value. id 0 means that it could not be allocated. */
int vm_push(struct pickle *p, uint32_t id);
int vm_pop(struct pickle *p, uint32_t *ret);
int vm_top(struct pickle *p, uint32_t *ret);

/* Gives an object to the fold of the job. 1: *ret is its number; 0: it stays; an error that was
 * reported. */
int vm_fold(struct pickle *p, struct pickle_record *record, uint32_t *ret);

/* Sets a mark at the top of the stack. -E2BIG, -ENOMEM. */
int vm_mark(struct pickle *p);

/* Returns the items on the stack from a place on; NULL before there ever was one. */
static inline const uint32_t *vm_from(const struct pickle *p, size_t place)
{
    return p->stack == NULL ? NULL : p->stack + place;
}

/* Removes the last mark. The items above it stay until vm_drop. */
int vm_items(struct pickle *p, const uint32_t **ret, uint32_t *ret_n);
void vm_drop(struct pickle *p, uint32_t n);

/* Returns the height below which values are out of reach: that of the last mark. */
size_t vm_floor(const struct pickle *p);

#endif
