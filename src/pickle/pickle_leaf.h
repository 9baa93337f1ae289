/* SPDX-License-Identifier: MIT */
/*
 * Values without others in them, as opcodes.
 */
#ifndef WFS_PICKLE_LEAF_H
#define WFS_PICKLE_LEAF_H

#include "pickle/pickle_output.h"

void pickle_put_text(struct pickle_output *output, const char *text, size_t n_bytes);
void pickle_put_integer(struct pickle_output *output, int64_t integer);

/* Writes the value and returns true; false when other values are in it. *ret_code: -EIO, -ENOMEM.
 */
bool pickle_put_leaf(struct pickle_output *output, const struct graph *graph,
                     const struct value *value, int *ret_code);

#endif
