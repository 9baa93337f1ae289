/* SPDX-License-Identifier: MIT */
/*
 * Values of a record in the graph: numbers with the width that they have in the file.
 */
#ifndef WFS_RECORD_VALUE_H
#define WFS_RECORD_VALUE_H

#include "format/records/record_source.h"
#include "value/value.h"

/* Each returns an id, or 0 when out of memory. The text is borrowed. */
uint32_t value_new_lasting(struct graph *graph, const char *text, size_t n_bytes);
uint32_t value_of_element(struct graph *graph, const struct element *element);

/*
 * Makes the lists of numbers in a value lists of values; decoded has them. -E2BIG when the graph
 * would have more than n_max values; -ENOMEM, errors as source_read. Recursion ends with the depth
 * that the record may have.
 */
int value_settle(struct graph *graph, const struct source *decoded, uint32_t id, uint64_t n_max);

/* Returns whether a float is one of 32 bits. */
bool value_is_narrow(const struct value *value);

#endif
