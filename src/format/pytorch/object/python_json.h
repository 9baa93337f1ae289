/* SPDX-License-Identifier: MIT */
/*
 * The notation of Python for graphs that were pickles: names of keys, objects as JSON.
 */
#ifndef WFS_PYTHON_JSON_H
#define WFS_PYTHON_JSON_H

#include "value/value.h"

/*
 * Returns a number for a key that has no such name. It depends on what the key is, and neither on
 * other keys nor on the protocol of the pickle; keys that contain tensors are all alike.
 */
uint32_t python_key_digest(const struct graph *graph, uint32_t id);

extern const struct value_notation python_notation;

#endif
