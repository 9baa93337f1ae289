/* SPDX-License-Identifier: MIT */
/*
 * The layout of a new checkpoint: a zip with its pickle and its records.
 */
#ifndef WFS_TORCH_LAYOUT_H
#define WFS_TORCH_LAYOUT_H

#include "format/pytorch/writer/torch_plan.h"

/* Writes the pickle of the plan's root, and lays everything out. -EIO, -E2BIG, -EFBIG, -ENOMEM. */
int torch_layout_make(struct torch_plan *plan);

#endif
