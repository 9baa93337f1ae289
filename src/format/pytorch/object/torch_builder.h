/* SPDX-License-Identifier: MIT */
/*
 * Calls that make tensors, numpy arrays, and tensors of several parts.
 */
#ifndef WFS_TORCH_BUILDER_H
#define WFS_TORCH_BUILDER_H

#include "format/pytorch/object/torch_tensor.h"

/* Notes that the data of an array or scalar is not text, where it is a str of Python 2. Other calls
 * stay as they are. */
void torch_array_note_data(struct torch *torch, const struct value *call);

/* Returns the list of the elements of an array of objects; 0 for other calls. */
uint32_t torch_array_objects(const struct graph *graph, const struct value *call);

/* Returns whether the elements are numbers or bytes, not objects. */
bool torch_array_has_bytes(const struct graph *graph, const struct value *call);

/* Reads the tensor that a value is. Returns 1, perhaps with a trouble; 0 when the value is not a
 * tensor; a negative error. */
int torch_builder_read(struct torch *torch, uint32_t id, struct torch_tensor *ret);

/* Returns the value and name of the i-th part; 0 after the last one. A quantized tensor is a tensor
 * itself, its parts are listed as well. */
uint32_t torch_composite_part(const struct graph *graph, const struct value *call, uint32_t i,
                              const char **ret_name);

/* Returns whether the call makes nothing but its parts. */
bool torch_is_composite(const struct graph *graph, const struct value *call);

/* Returns whether a value is a call that makes a tensor of several, or one of another class. */
bool torch_is_composed(const struct graph *graph, const struct value *value);

/* Returns whether a value is a call that makes a quantized tensor. */
bool torch_is_quantized(const struct graph *graph, const struct value *value);

/* Returns a text about the whole that each part carries: its name, and JSON in the arena; NULL when
 * there is none. */
const char *torch_composite_text(struct torch *torch, const struct value *call,
                                 const char **ret_name);

#endif
