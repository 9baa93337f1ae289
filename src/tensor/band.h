/* SPDX-License-Identifier: MIT */
/*
 * A small cache of bands (stretches of what is shown) for tensors whose shown order runs across
 * the stored one, so that reading them costs about the same per byte whatever the size of the
 * requests. One for the process, bounded, with its own lock: the only shared mutable state of the
 * library.
 */
#ifndef WFS_BAND_H
#define WFS_BAND_H

#include <weightfs/tensor.h>

/* Reads as gather does, from a tensor that is not plain. May run in parallel. */
int band_read(const struct wfs_tensor *tensor, uint64_t offset, void *buf, size_t n_bytes);

/* Makes the next band for a reader that has reached offset, inside of the tensor, and has read
 * enough of this one to need it. */
void band_read_ahead(const struct wfs_tensor *tensor, uint64_t offset);

#endif
