/* SPDX-License-Identifier: MIT */
/*
 * The names of containers at the end.
 */
#ifndef WFS_TORCH_EDIT_NAMES_H
#define WFS_TORCH_EDIT_NAMES_H

#include "format/pytorch/writer/torch_edit.h"

/* Decides what every container is called, and which one is the root. -ENOMEM. */
int torch_edit_names(struct torch_edit *edit);

#endif
