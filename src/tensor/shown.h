/* SPDX-License-Identifier: MIT */
/*
 * What a tensor shows, as a source: row-major and dense, however it is stored.
 */
#ifndef WFS_TENSOR_SHOWN_H
#define WFS_TENSOR_SHOWN_H

#include <weightfs/tensor.h>

#include "base/source.h"

/* The arrays and the source of the tensor must live longer. -ENOMEM. */
int shown_source(const struct wfs_tensor *tensor, struct source **out);

#endif
