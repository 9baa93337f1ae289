/* SPDX-License-Identifier: MIT */
/*
 * Tensors in a record: what their maps hold.
 */
#ifndef WFS_RECORD_TENSOR_H
#define WFS_RECORD_TENSOR_H

#include "format/records/record_load.h"

/*
 * Adds a tensor under the key, which lives in the arena. -EBADMSG, -EOPNOTSUPP, -E2BIG, -ENOMEM.
 * What can be known of a tensor whose bytes do not fit its shape is added with a trouble.
 */
int record_tensor_add(struct record_load *load, uint32_t id, uint32_t place, const char *key);

#endif
