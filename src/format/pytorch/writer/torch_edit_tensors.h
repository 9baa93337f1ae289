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

#endif
