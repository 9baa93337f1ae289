/* SPDX-License-Identifier: MIT */
/*
 * Tensors that were cut along one dimension, as the whole: in their dtype, dense and row-major.
 */
#ifndef WFS_JOIN_H
#define WFS_JOIN_H

#include <weightfs/tensor.h>
#include "base/source.h"

/*
 * Makes the whole a source. Each part has n_outer runs of elements, one for each index of what is
 * outside of the dimension; those of all parts, in their order, are one run of the whole. The parts
 * are copied, their arrays are borrowed. All have the same dtype, of whole bytes. -ENOMEM.
 */
int join_new(const struct wfs_tensor *parts, size_t n_parts, uint64_t n_outer, struct source **out);

#endif
