/* SPDX-License-Identifier: MIT */
/*
 * Integers of any size, as values of a graph.
 */
#ifndef WFS_PICKLE_INTEGER_H
#define WFS_PICKLE_INTEGER_H

#include "base/limits.h"
#include "value/value.h"

/* Creates the integer with these n bytes, two's complement, little-endian. Returns 0 without
 * memory. */
uint32_t integer_of_twos(struct graph *graph, const uint8_t *bytes, size_t n);

/* Creates the integer that a decimal text shows, with or without a sign. -EINVAL when it shows
 * none, -E2BIG above the limit, -ENOMEM. */
int integer_parse(struct graph *graph, const struct limits *limits, const char *text, size_t n,
                  uint32_t *ret);

#endif
