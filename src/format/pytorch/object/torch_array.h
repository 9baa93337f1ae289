/* SPDX-License-Identifier: MIT */
/*
 * numpy arrays in pickles.
 */
#ifndef WFS_TORCH_ARRAY_H
#define WFS_TORCH_ARRAY_H

#include "format/pytorch/object/torch_tensor.h"

/* Reads the array that a call makes. As torch_builder_read; 0 also for an array of objects. */
int torch_array_read(struct torch *torch, uint32_t id, struct torch_tensor *ret);

/* Notes that the data of an array or scalar is not text, where it is a str of Python 2. Other calls
 * stay as they are. */
void torch_array_note_data(struct torch *torch, const struct value *call);

/* Returns the list of the elements of an array of objects; 0 for other calls. */
uint32_t torch_array_objects(const struct graph *graph, const struct value *call);

/* Returns whether the elements are numbers or bytes, not objects. */
bool torch_array_has_bytes(const struct graph *graph, const struct value *call);

#endif
