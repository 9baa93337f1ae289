/* SPDX-License-Identifier: MIT */
/*
 * How a tensor is spelled in a pickle.
 */
#ifndef WFS_TORCH_SPELLING_H
#define WFS_TORCH_SPELLING_H

#include "format/pytorch/writer/torch_plan.h"

/* The spelling of an element type. */
struct torch_spelling {
    const char *class; /* of its storage; NULL: untyped, the tensor declares the dtype */
    const char *dtype;
    uint8_t n_per_unit; /* elements that PyTorch counts as one */
};

/* A tensor of the new pickle: a view of a record. */
struct torch_view {
    uint32_t record;               /* from 0 */
    uint64_t offset;               /* elements */
    const uint64_t *strides;       /* NULL: dense */
    uint32_t requires_grad, hooks; /* values; 0: False, none */
};

/* Returns NULL when PyTorch has no such type. */
const struct torch_spelling *torch_spelling_of(enum wfs_dtype dtype);

/* Fills rank dims and rank strides of a dense tensor, as PyTorch counts them: packed elements in
 * pairs. */
void torch_spelling_shape(const struct wfs_tensor *tensor, uint64_t *dims, uint64_t *strides);

/* Creates the storage of a view. Returns 0 without memory. */
uint32_t torch_spelling_record(struct torch_plan *plan, const struct torch_view *view);

/* Creates the call that makes a tensor (of this dtype and shape) from a view. Returns 0 without
 * memory. */
uint32_t torch_spelling_call(struct torch_plan *plan, const struct wfs_tensor *tensor,
                             const struct torch_view *view);

#endif
