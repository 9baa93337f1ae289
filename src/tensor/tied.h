/* SPDX-License-Identifier: MIT */
/*
 * Tensors that are the same view of the same bytes: names of one thing.
 */
#ifndef WFS_TENSOR_TIED_H
#define WFS_TENSOR_TIED_H

#include <weightfs/tensor.h>

/*
 * Returns whether two tensors of one shape make what they show of the stored bytes in the same way:
 * dtype, byte order, conjugate, sign and strides. The bytes may lie elsewhere.
 */
bool tied_are_stored_alike(const struct wfs_tensor *a, const struct wfs_tensor *b);

/* Returns whether two tensors are the same view of the same bytes, and have any. */
bool tied_are_same(const struct wfs_tensor *a, const struct wfs_tensor *b);

/* Returns a hash that is equal for tensors that are the same; other processes have other hashes. */
uint64_t tied_hash(const struct wfs_tensor *tensor);

#endif
