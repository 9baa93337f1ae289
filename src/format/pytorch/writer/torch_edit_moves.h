/* SPDX-License-Identifier: MIT */
/*
 * Moves into other containers, for everything that is renamed or new.
 */
#ifndef WFS_TORCH_EDIT_MOVES_H
#define WFS_TORCH_EDIT_MOVES_H

#include "format/pytorch/writer/torch_edit.h"

/* Decides for each node whether it moves, and into which container. -EINVAL names one that has
 * no place, -ENOMEM. */
int torch_edit_moves(struct torch_edit *edit);

#endif
