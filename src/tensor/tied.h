/* SPDX-License-Identifier: MIT */
/*
 * Tensors that are the same view of the same bytes: names of one thing.
 */
#ifndef WFS_TENSOR_TIED_H
#define WFS_TENSOR_TIED_H

#include <weightfs/tensor.h>

/* The same view of the same bytes, and there are bytes. */
bool tied_are_same(const struct wfs_tensor *a, const struct wfs_tensor *b);

/* Equal for those that are the same; keyed by the process. */
uint64_t tied_hash(const struct wfs_tensor *tensor);

#endif
