/* SPDX-License-Identifier: MIT */
/*
 * Marks on the values of a graph: which of them have tensors in them. Calls whose result is a
 * container (dicts, deques and their subclasses) may get their items as arguments: Python 2 pickles
 * OrderedDict([[key, value], ...]).
 */
#ifndef WFS_TORCH_MARKS_H
#define WFS_TORCH_MARKS_H

#include "format/pytorch/object/torch.h"

/* Returns the argument that holds the items of what the call makes, or the elements of an array of
 * objects; 0: none. */
uint32_t torch_container_content(const struct graph *graph, const struct value *call);

/* Sets MARK_TENSOR on every value at or below root that contains a tensor, removes duplicate keys
 * of dicts, and spells calls that make containers in one way. -ENOMEM. */
int torch_marks_set(struct torch *torch, uint32_t root);

/* The dicts of a module with what it owns, in the order of state_dict(). */
enum { TORCH_N_OWNED = 3 };
extern const char *const torch_owned[TORCH_N_OWNED];

/* Sets MARK_OWNED on the parameters, buffers and submodules of all modules in the graph. Values are
 * searched once. */
void torch_marks_modules(struct torch *torch);

#endif
