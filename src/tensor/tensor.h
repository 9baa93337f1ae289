/* SPDX-License-Identifier: MIT */
/*
 * Tensors inside the library: their shapes, texts and ties, and what one shows as a source.
 */
#ifndef WFS_TENSOR_TENSOR_H
#define WFS_TENSOR_TENSOR_H

#include <weightfs/strbuf.h>
#include <weightfs/tensor.h>
#include "base/arena.h"
#include "base/source.h"

/* Replaces borrowed dims by a copy in the arena. -ENOMEM. */
int shape_own(struct wfs_shape *shape, struct arena *arena);

/* Returns the first text of a list with that name, or NULL. */
const struct wfs_text *text_find(const struct wfs_text *list, const char *name);

/* Returns whether it is a float that can be calculated with: of 16 bits or more. */
static inline bool dtype_is_wide_float(enum wfs_dtype dtype)
{
    return wfs_dtype_kind(dtype) == WFS_KIND_FLOAT && wfs_dtype_bits(dtype) >= 16;
}

/* 1 for a dimension that it does not have. */
static inline uint64_t tensor_dim(const struct wfs_tensor *tensor, uint32_t i)
{
    return i < tensor->shape.rank ? tensor->shape.dims[i] : 1;
}

/* 0 when they are too many to count. */
static inline uint64_t tensor_elems(const struct wfs_tensor *tensor)
{
    uint64_t n = 0;
    return wfs_shape_count(&tensor->shape, &n) < 0 ? 0 : n;
}

/* Adds "[2, 3]". */
void shape_print(struct strbuf *text, const struct wfs_shape *shape);

/*
 * Returns whether two tensors of one shape make what they show of the stored bytes in the same way:
 * dtype, byte order, conjugate, sign and strides. The bytes may lie elsewhere.
 */
bool tied_are_stored_alike(const struct wfs_tensor *a, const struct wfs_tensor *b);

/* Returns whether two tensors are the same view of the same bytes, and have any. */
bool tied_are_same(const struct wfs_tensor *a, const struct wfs_tensor *b);

/* Returns a hash that is equal for tensors that are the same; other processes have other hashes. */
uint64_t tied_hash(const struct wfs_tensor *tensor);

enum tensor_text { TENSOR_PARAM_ID, TENSOR_QUANTIZATION, TENSOR_N_TEXTS };

extern const char *const tensor_text_names[TENSOR_N_TEXTS];

/* Returns whether a tensor of the dtype can have a quantization set. */
bool tensor_can_be_quantized(enum wfs_dtype dtype);

/*
 * Lists those that were set, then those of the base that are still true with the dtype. set has
 * TENSOR_N_TEXTS texts, NULL for one that was not set; set and base may be NULL. -ENOMEM.
 */
int tensor_texts_make(const char *const *set, const struct wfs_tensor *base, enum wfs_dtype dtype,
                      struct arena *arena, const struct wfs_text **ret);

/* The arrays and the source of the tensor must live longer. -ENOMEM. */
int shown_source(const struct wfs_tensor *tensor, struct source **out);

#endif
