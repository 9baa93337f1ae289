/* SPDX-License-Identifier: MIT */
/*
 * Tensors as the lists of numbers that Burn up to 0.13 reads, made while they are read. Each number
 * has the marker of its dtype, however small it is, so that all of a tensor take as many bytes.
 */
#ifndef WFS_RECORD_ENCODED_H
#define WFS_RECORD_ENCODED_H

#include "base/source.h"
#include "tensor/catalog.h"

/* Returns how many bytes an element of the dtype takes in a list, 0: it cannot be in one. */
unsigned record_encoded_bytes(enum wfs_dtype dtype);

/*
 * Adds the elements of a tensor, which is borrowed and has a dtype that can be in a list. The
 * source is made when it is NULL; *ret_offset is where in it they begin. -ENOMEM; -EOVERFLOW when
 * offsets run out.
 */
int record_encoded_add(struct source **source, const struct wfs_tensor *tensor,
                       uint64_t *ret_offset);

#endif
