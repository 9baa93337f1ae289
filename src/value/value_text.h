/* SPDX-License-Identifier: MIT */
/*
 * Numbers and keys of the graph as Python prints them.
 */
#ifndef WFS_VALUE_TEXT_H
#define WFS_VALUE_TEXT_H

#include "value/value.h"

enum { VALUE_FLOAT_MAX = 32 };

/* The shortest text that reads back as the same number: "0.1", "1e-08", "nan"; ended by NUL.
 * Returns its length. */
size_t value_print_float(double real, char *buf);

/* An integer of any size in decimal, malloc'ed; NULL when out of memory. */
char *value_print_integer(const struct value *value);

/* Text that grows. */
struct text {
    char *bytes; /* malloc'ed, not ended */
    size_t n, n_room;
    size_t n_max;    /* 0: no limit */
    bool is_cut;     /* it was at its limit, or memory was out */
    bool has_failed; /* memory was out */
};

void text_add(struct text *text, const char *bytes, size_t n);
void text_print(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_done(struct text *text);

/*
 * What a dict key is called in dotted names: text as it is, numbers, True, False and None as Python
 * spells them, tuples of such and bytes as Python shows them. False, and nothing added, for all
 * others.
 */
bool text_add_key(struct text *text, const struct graph *graph, uint32_t id);

/* ---- value_bytes.c ---- */

/* A copy of a range, malloc'ed; false when it is large (a MiB) or cannot be read. */
bool value_copy_range(const struct value_bytes *bytes, uint8_t **ret, size_t *ret_n);

/* The same of a value that is bytes, or what stands for them in old protocols; false when it is
 * neither. */
bool value_copy_bytes(const struct graph *graph, uint32_t id, uint8_t **ret, size_t *ret_n);

#endif
