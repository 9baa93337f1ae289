/* SPDX-License-Identifier: MIT */
/*
 * A source whose bytes are derived from those of another: inflated, decoded in memory, or gathered
 * with strides. Each addition gets a range of offsets.
 */
#ifndef WFS_DERIVED_H
#define WFS_DERIVED_H

#include "base/source.h"
#include "archive/inflate.h"
#include <weightfs/tensor.h>

/* origin is borrowed. -ENOMEM. */
int derived_new(struct source *origin, struct source **out);

/* Each adds a range and returns where it begins. -ENOMEM; -EOVERFLOW when offsets run out. */
int derived_add_deflated(struct source *derived, const struct deflated *member,
                         uint64_t *ret_offset);

/* Adopts bytes, which were malloc'ed, also on failure. */
int derived_add_memory(struct source *derived, void *bytes, size_t n_bytes, uint64_t *ret_offset);

/* Adds the shown bytes of a tensor, whose arrays and source must live longer. */
int derived_add_tensor(struct source *derived, const struct wfs_tensor *tensor,
                       uint64_t *ret_offset);

#endif
