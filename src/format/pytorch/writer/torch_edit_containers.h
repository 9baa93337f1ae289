/* SPDX-License-Identifier: MIT */
/*
 * The containers of an edited checkpoint.
 */
#ifndef WFS_TORCH_EDIT_CONTAINERS_H
#define WFS_TORCH_EDIT_CONTAINERS_H

#include "format/pytorch/writer/torch_edit.h"

/* Changes the containers, from the inside to the outside, and sets the root of the plan.
 * -EINVAL, -ENOMEM. */
int torch_edit_containers(struct torch_edit *edit);

#endif
