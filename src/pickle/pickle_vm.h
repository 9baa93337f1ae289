/* SPDX-License-Identifier: MIT */
/*
 * Inside of the pickle reader: the state of the stack machine, and what its opcodes share.
 */
#ifndef WFS_PICKLE_VM_H
#define WFS_PICKLE_VM_H

#include <sys/types.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "pickle/pickle.h"
#include "base/stream.h"

struct far_slot {
    uint32_t index, id;
};

/* Slots that are numbered densely lie in an array; the others are found by hash. */
struct memo {
    uint32_t *near;
    uint32_t n_room;
    uint32_t n_used; /* in both */
    struct map map;  /* of far */
    struct far_slot *far;
    uint32_t n_far, n_far_room;
};

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
};

/* EBADMSG with the place and this text. */
int vm_fail(struct pickle *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The sentence for an error of the input functions. */
int vm_fail_input(struct pickle *p, int code);

/* The sentence for an argument that is said to be longer than what is left. */
int vm_fail_short(struct pickle *p, const char *what, uint64_t n);

/* Argument of the opcode; *ret is valid until the next one. */
int vm_take(struct pickle *p, size_t n_bytes, const uint8_t **ret);
int vm_line(struct pickle *p, const char **ret, size_t *ret_n);

/* id 0 stands for "out of memory". */
int vm_push(struct pickle *p, uint32_t id);
int vm_pop(struct pickle *p, uint32_t *ret);
int vm_top(struct pickle *p, uint32_t *ret);

/* What lies above the last mark; the mark is gone, the items stay until vm_drop. */
int vm_items(struct pickle *p, const uint32_t **ret, uint32_t *ret_n);
void vm_drop(struct pickle *p, uint32_t n);

int memo_put(struct memo *memo, uint32_t index, uint32_t id);

/* 0 when the slot was never set. */
uint32_t memo_get(const struct memo *memo, uint32_t index);
void memo_done(struct memo *memo);

/* Opcodes, by group. */
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

int op_constant(struct pickle *p);
int op_empty(struct pickle *p);
int op_tuple(struct pickle *p);
int op_short_tuple(struct pickle *p);
int op_collect(struct pickle *p);
int op_append(struct pickle *p);
int op_setitem(struct pickle *p);
int op_global(struct pickle *p);
int op_stack_global(struct pickle *p);
int op_inst(struct pickle *p);
int op_obj(struct pickle *p);
int op_call(struct pickle *p);
int op_newobj_ex(struct pickle *p);
int op_build(struct pickle *p);
int op_extension(struct pickle *p);
int op_binpersid(struct pickle *p);

/* An integer out of decimal text, with or without a sign. -EINVAL when it is none, -E2BIG past the
 * limit. */
int parse_integer(struct graph *graph, const struct limits *limits, const char *text, size_t n,
                  uint32_t *ret);

/* Two's complement, little-endian; 0 when out of memory. */
uint32_t value_of_twos(struct graph *graph, const uint8_t *bytes, size_t n);

/*
 * The id of a persistent object that protocol 0 wrote as Python shows a tuple, as that tuple; *ret
 * is 0 when the text is no such thing. -ENOMEM.
 */
int parse_persistent_id(struct graph *graph, const struct limits *limits, const char *text,
                        size_t n, uint32_t *ret);

/* Python escapes of a quoted string, undone in buf (n bytes of room); -1 when malformed. */
ssize_t unescape(const char *text, size_t n, char *buf);

#endif
