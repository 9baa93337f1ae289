/* SPDX-License-Identifier: MIT */
/*
 * Block types: the elements of a block as numbers, bit for bit as GGML and its Python package
 * compute them, and a tensor of blocks as one of F32.
 */
#ifndef WFS_BLOCKS_H
#define WFS_BLOCKS_H

#include <weightfs/tensor.h>

#include <stdint.h>

/* Decodes whole blocks. */
void blocks_decode(enum wfs_dtype dtype, const void *blocks, size_t n_blocks, float *out);

/* Makes whole blocks of one of the types for which blocks_can_be_made: Q8_0, Q4_0, Q4_1, Q5_0,
 * Q5_1. Others have no one result. */
bool blocks_can_be_made(enum wfs_dtype dtype);
void blocks_encode(enum wfs_dtype dtype, const float *numbers, size_t n_blocks, void *out);

/* Returns whether elements are decoded in whole blocks: the types of GGML, F4 and F6. */
bool dtype_is_packed(enum wfs_dtype dtype);

/* Returns whether a tensor has blocks whose elements can be decoded: a big-endian file does not
 * state what is swapped in those of GGML. */
bool blocks_are_known(const struct wfs_tensor *tensor);

/*
 * Makes a source of the elements as F32, dense and row-major. The tensor is shown as it is stored,
 * and its arrays are borrowed. -ENOMEM.
 */
int blocks_source_new(const struct wfs_tensor *tensor, struct source **out);

/* The same, of the blocks of a type that are made of a tensor that shows F32, whose rows they fill.
 */
int blocks_made_new(const struct wfs_tensor *tensor, enum wfs_dtype dtype, struct source **out);

/* Makes the tensor show such a source of it, in the dtype of that. -EOVERFLOW: it is too large. */
int blocks_show(struct wfs_tensor *tensor, enum wfs_dtype dtype, struct source *source);

/*
 * The grids of the IQ types, from GGML (MIT licence): each entry is the codes of eight elements of
 * two bits, or of four elements of four.
 */

extern const uint16_t block_grid_iq1[2048];
extern const uint16_t block_grid_iq2_xxs[256];
extern const uint16_t block_grid_iq2_xs[512];
extern const uint16_t block_grid_iq2_s[1024];
extern const uint16_t block_grid_iq3_xxs[256];
extern const uint16_t block_grid_iq3_s[512];

#endif
