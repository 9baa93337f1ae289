/* SPDX-License-Identifier: MIT */
/*
 * The places of an edited checkpoint.
 */
#ifndef WFS_TORCH_EDIT_PLACES_H
#define WFS_TORCH_EDIT_PLACES_H

#include "format/pytorch/writer/torch_edit.h"

/* Decides what is renamed, moved, removed and added, and in which order everything is in the
 * end. -EINVAL names what has no place, -E2BIG, -ENOMEM. */
int torch_edit_places(struct torch_edit *edit);

#endif
