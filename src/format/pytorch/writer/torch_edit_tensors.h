/* SPDX-License-Identifier: MIT */
/*
 * The tensors of an edited checkpoint.
 */
#ifndef WFS_TORCH_EDIT_TENSORS_H
#define WFS_TORCH_EDIT_TENSORS_H

#include "format/pytorch/writer/torch_edit.h"

/* Gives every node that is a tensor its value: the loaded one, changed where the tensor is
 * another one, or a new one. -EOPNOTSUPP, -EINVAL, -ENOMEM. */
int torch_edit_tensors(struct torch_edit *edit);

/* Returns the function that makes a tensor of a storage, inside of calls that wrap it;
 * WHAT_UNKNOWN: it is not such a tensor. */
enum torch_what torch_edit_maker(const struct graph *graph, uint32_t id);

#endif
