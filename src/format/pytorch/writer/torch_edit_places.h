/* SPDX-License-Identifier: MIT */
/*
 * The places of an edited checkpoint.
 */
#ifndef WFS_TORCH_EDIT_PLACES_H
#define WFS_TORCH_EDIT_PLACES_H

#include "format/pytorch/writer/torch_edit.h"

/* Decides what is renamed, moved, removed and added, and the order of everything at the end.
 * -EINVAL names a thing that has no place, -E2BIG, -ENOMEM. */
int torch_edit_places(struct torch_edit *edit);

#endif
