/* SPDX-License-Identifier: MIT */
/*
 * Texts of tensors that a user may set, and what is left of the others when a tensor is edited.
 */
#ifndef WFS_TENSOR_TEXTS_H
#define WFS_TENSOR_TEXTS_H

#include <weightfs/tensor.h>

#include "base/arena.h"

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

#endif
