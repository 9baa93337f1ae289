/* SPDX-License-Identifier: MIT */
/*
 * Objects that exist as a whole or not at all.
 */
#ifndef WFS_TORCH_EDIT_OBJECTS_H
#define WFS_TORCH_EDIT_OBJECTS_H

#include "format/pytorch/writer/torch_edit.h"

/* Decides which objects are taken apart: those that have lost a part, or have one with a name of
 * its own. -EINVAL names one that cannot be. */
int torch_edit_objects(struct torch_edit *edit);

#endif
