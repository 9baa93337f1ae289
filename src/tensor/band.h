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

/* As gather, of a tensor that is not plain. May run in parallel. */
int band_read(const struct wfs_tensor *tensor, uint64_t offset, void *buf, size_t n_bytes);

/* For a reader who has come to offset, inside of the tensor: makes the next band, if he has read
 * enough of this one to want it. */
void band_read_ahead(const struct wfs_tensor *tensor, uint64_t offset);

#endif
