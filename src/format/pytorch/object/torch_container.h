/* SPDX-License-Identifier: MIT */
/*
 * Calls whose result is a container: dicts, deques and their subclasses, which may get their items
 * as arguments. Python 2 pickles OrderedDict([[key, value], ...]).
 */
#ifndef WFS_TORCH_CONTAINER_H
#define WFS_TORCH_CONTAINER_H

#include "format/pytorch/object/torch.h"

/* Moves the items in the arguments of a call that makes a dict or deque to where later protocols
 * have them: OrderedDict([[key, value]]) becomes OrderedDict() with an item. Calls of other things
 * stay as they are. -ENOMEM. */
int torch_container_unfold(struct torch *torch, uint32_t call);

/* Makes a dict of the only argument of an unknown call, when that is a list of names and tensors
 * as a subclass of OrderedDict gets it. It remains an argument. -ENOMEM. */
int torch_container_name(struct torch *torch, uint32_t call);

/* Returns the argument that holds the items of what the call makes, or the elements of an array of
 * objects; 0: none. */
uint32_t torch_container_content(const struct graph *graph, const struct value *call);

#endif
