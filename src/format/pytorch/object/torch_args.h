/* SPDX-License-Identifier: MIT */
/*
 * Arguments of calls: items of tuples, and integers.
 */
#ifndef WFS_TORCH_ARGS_H
#define WFS_TORCH_ARGS_H

#include "value/value.h"

/* Returns the i-th item of a tuple or list; 0 when it is neither or has fewer items. */
uint32_t torch_arg(const struct graph *graph, uint32_t args, uint32_t i);
uint32_t torch_n_args(const struct graph *graph, uint32_t args);

/* Reads an integer or a bool; false when the value is neither, or the integer has over 64 bits. */
bool torch_integer(const struct graph *graph, uint32_t id, int64_t *ret);

#endif
