/* SPDX-License-Identifier: MIT */
/*
 * Marks on the values of a graph: which of them have tensors in them.
 */
#ifndef WFS_TORCH_MARKS_H
#define WFS_TORCH_MARKS_H

#include "format/pytorch/object/torch.h"

/* Sets MARK_TENSOR on every value at or below root that contains a tensor, removes duplicate keys
 * of dicts, and spells calls that make containers in one way. -ENOMEM. */
int torch_marks_set(struct torch *torch, uint32_t root);

/* The dicts of a module with what it owns, in the order of state_dict(). */
enum { TORCH_N_OWNED = 3 };
extern const char *const torch_owned[TORCH_N_OWNED];

/* Sets MARK_OWNED on the parameters, buffers and submodules of all modules in the graph. Values are
 * searched once. */
void torch_marks_modules(struct torch *torch);

/* Returns whether a tensor is in the value, or the value is one. False for 0. */
static inline bool torch_has_tensor(const struct graph *graph, uint32_t id)
{
    return id != 0 && (graph_at(graph, id)->marks & MARK_TENSOR) != 0;
}

#endif
