/* SPDX-License-Identifier: MIT */
/*
 * Leaves of the graph: numbers as text, texts as keys, bytes copied out of their source.
 */
#ifndef WFS_VALUE_LEAF_H
#define WFS_VALUE_LEAF_H

#include <weightfs/strbuf.h>

#include "value/value.h"

enum { VALUE_FLOAT_MAX = 32 };

/* Writes the shortest text that reads back as the same number: "0.1", "1e-08", "nan"; ends it with
 * a NUL. Returns its length. */
size_t value_print_float(double real, char *buf);

/* Returns an integer of any size in decimal, malloc'ed; NULL when out of memory. */
char *value_print_integer(const struct value *value);

/* Returns whether the value says nothing: null, or lists of such values, and dicts of them by
 * texts, as records of Burn have for what is not stored. */
bool value_is_filler(const struct graph *graph, uint32_t id);

/* Copies a range into malloc'ed memory. Returns 1; 0 when it is large (over a MiB); -EIO, -ENOMEM.
 */
int value_copy_range(const struct value_bytes *bytes, uint8_t **ret, size_t *ret_n);

/* Returns whether a text is UTF-8 but for halves of surrogate pairs, as texts of Python are; a str
 * of Python 2 may be anything. */
bool value_is_unicode(const struct value *text);

/* Returns whether it is a str of Python 2 whose bytes stand for characters of Latin-1, as Python 3
 * reads them with that encoding: those that are data, or are not UTF-8. */
bool value_is_latin1(const struct value *text);

/* Adds the characters of such a text as UTF-8. */
void value_add_latin1(struct strbuf *text, const struct value *value);

/* Writes the bytes that a text stands for, where Latin-1 encodes it: those of a str of Python 2, or
 * one for each character. buf has room for as many as the text has. Returns how many; -1 for a
 * character above 255. */
int64_t value_latin1_bytes(const struct value *text, uint8_t *buf);

/*
 * Adds the name that a key of a dict has in dotted names: text as it is, other keys as the notation
 * of the graph says. Returns false, having added nothing, when it has no name.
 */
bool value_add_key(struct strbuf *text, const struct graph *graph, uint32_t id);

#endif
