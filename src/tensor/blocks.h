/* SPDX-License-Identifier: MIT */
/*
 * Block types: the elements of a block as numbers, bit for bit as GGML and its Python package
 * compute them, and a tensor of blocks as one of F32.
 */
#ifndef WFS_BLOCKS_H
#define WFS_BLOCKS_H

#include <weightfs/tensor.h>

/* Decodes whole blocks. */
void blocks_decode(enum wfs_dtype dtype, const void *blocks, size_t n_blocks, float *out);

/* Returns whether a tensor has blocks whose elements can be decoded: a big-endian file does not
 * state what is swapped in them. */
bool blocks_are_known(const struct wfs_tensor *tensor);

/*
 * Makes a source of the elements as F32, dense and row-major. The tensor is shown as it is stored,
 * and its arrays are borrowed. -ENOMEM.
 */
int blocks_source_new(const struct wfs_tensor *tensor, struct source **out);

/* Makes the tensor show such a source of it, as F32. -EOVERFLOW: it is too large. */
int blocks_show(struct wfs_tensor *tensor, struct source *source);

#endif
