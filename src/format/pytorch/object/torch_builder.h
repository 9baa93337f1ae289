/* SPDX-License-Identifier: MIT */
/*
 * Calls that make tensors, read as descriptions of tensors.
 */
#ifndef WFS_TORCH_BUILDER_H
#define WFS_TORCH_BUILDER_H

#include "format/pytorch/object/torch_tensor.h"

/* Reads the tensor that a value is. Returns 1, perhaps with a trouble; 0 when the value is not a
 * tensor; a negative error. */
int torch_builder_read(struct torch *torch, uint32_t id, struct torch_tensor *ret);

#endif
