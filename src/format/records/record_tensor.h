/* SPDX-License-Identifier: MIT */
/*
 * Tensors in a record: which maps are tensors and parameters, and what they hold.
 *
 *   parameter           {"id": text, "param": tensor}
 *   tensor, since 0.14  {"bytes": bytes, "shape": [integer...], "dtype": dtype}
 *   tensor, up to 0.13  {"value": [number...], "shape": [integer...]}
 */
#ifndef WFS_RECORD_TENSOR_H
#define WFS_RECORD_TENSOR_H

#include "format/records/record_load.h"

/* Returns whether the value is a tensor, or a parameter, perhaps a damaged one. */
bool record_is_tensor(const struct graph *graph, uint32_t id);

/*
 * Adds a tensor under the key, which lives in the arena. -EBADMSG, -EOPNOTSUPP, -E2BIG, -ENOMEM.
 * What can be known of a tensor whose bytes do not fit its shape is added with a trouble.
 */
int record_tensor_add(struct record_load *load, uint32_t id, uint32_t place, const char *key);

#endif
