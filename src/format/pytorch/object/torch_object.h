/* SPDX-License-Identifier: MIT */
/*
 * What is listed of objects: modules, tensor subclasses, and everything else that a call makes.
 */
#ifndef WFS_TORCH_OBJECT_H
#define WFS_TORCH_OBJECT_H

#include "format/pytorch/object/torch_walk.h"

/* Each does one step of the frame. Returns 1 when nothing is left in it, 0 otherwise, or an
 * error. */
int object_step_call(struct walk *walk, struct frame *frame);
int object_step_module(struct walk *walk, struct frame *frame);
int object_step_wrapper(struct walk *walk, struct frame *frame);

/* Returns whether the call makes an nn.Module, judged by its state. */
bool object_is_module(const struct walk *walk, const struct value *call);

/* Returns whether the call makes a tensor whose content is other tensors, held by its state. */
bool object_is_wrapper(const struct walk *walk, const struct value *call);

/* Returns what the item with this key is in a module, if state_dict() does not return it; else
 * NULL. */
const char *object_role(const struct frame *frame, uint32_t key);

/* Goes into what BUILD gave to an object: its attributes, under the current path. */
int object_enter_state(struct walk *walk, uint32_t state);

#endif
