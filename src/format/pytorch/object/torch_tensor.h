/* SPDX-License-Identifier: MIT */
/*
 * A tensor between the call that describes it and the catalog: shape, strides and offset are
 * checked against the storage before anything is added.
 */
#ifndef WFS_TORCH_TENSOR_H
#define WFS_TORCH_TENSOR_H

#include "format/pytorch/object/torch.h"

struct torch_tensor {
    struct torch_storage storage;
    enum wfs_dtype dtype;
    bool is_conjugate, is_negative;
    uint64_t offset; /* elements */
    uint32_t rank;
    uint64_t *dims, *strides; /* in the scratch, until the next tensor; strides NULL: row-major */
    bool is_fortran;          /* numpy: column-major, strides are computed */
    uint32_t item_bytes;      /* numpy, of an opaque element; 0: by dtype */
    const char *trouble;      /* why it cannot be read; NULL: it can */
    const char *attr_name, *attr_value; /* a text that is shown with it; NULL: none */
    uint32_t state;                     /* value: attributes that belong to it; 0: none */
};

/* The trouble of a tensor that was saved without its data. */
extern const char torch_tensor_absent[];

/* Sets the trouble, unless the tensor has one. NULL is ignored. */
void torch_tensor_spoil(struct torch_tensor *tensor, const char *trouble);

/* Makes room for the dims and strides of a tensor of that rank, and one more dimension. -ENOMEM. */
int torch_tensor_reserve(struct torch *torch, struct torch_tensor *tensor, uint32_t rank);

/* Reads shape and strides (0: row-major). Whatever is wrong with them becomes the trouble of the
 * tensor. -ENOMEM. */
int torch_tensor_set_shape(struct torch *torch, struct torch_tensor *tensor, uint32_t size,
                           uint32_t stride);

/* Checks that the tensor lies inside its storage, and adds it to the catalog. key must live in the
 * arena; place 0: none. -E2BIG, -ENOMEM. */
int torch_tensor_add(struct torch *torch, const char *key, uint32_t place,
                     struct torch_tensor *tensor);

#endif
