/* SPDX-License-Identifier: MIT */
/*
 * Tensors that are made of several: sparse, nested, quantized by channel.
 */
#ifndef WFS_TORCH_COMPOSITE_H
#define WFS_TORCH_COMPOSITE_H

#include "format/pytorch/object/torch.h"

/* Returns the value and name of the i-th part; 0 after the last one. A quantized tensor is a tensor
 * itself, its parts are listed as well. */
uint32_t torch_composite_part(const struct graph *graph, const struct value *call, uint32_t i,
                              const char **ret_name);

/* Returns whether the call makes nothing but its parts. */
bool torch_is_composite(const struct graph *graph, const struct value *call);

/* Returns a text about the whole that each part carries: its name, and JSON in the arena; NULL when
 * there is none. */
const char *torch_composite_text(struct torch *torch, const struct value *call,
                                 const char **ret_name);

#endif
