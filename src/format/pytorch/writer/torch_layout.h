/* SPDX-License-Identifier: MIT */
/*
 * The layout of a new checkpoint: a zip with its pickle and its records; and items: such zips, one
 * after another in one file, each with a tensor or value.
 */
#ifndef WFS_TORCH_LAYOUT_H
#define WFS_TORCH_LAYOUT_H

#include "format/pytorch/writer/torch_plan.h"
#include "pickle/pickle_writer.h"

/* Writes the pickle of the plan's root, and lays everything out. -EIO, -E2BIG, -EFBIG, -ENOMEM. */
int torch_layout_make(struct torch_plan *plan);

/* Where an item is in the file. */
struct torch_item {
    uint64_t offset, n_bytes;
};

/* Adds an item with a tensor at the end of a layout. The dtype is one that PyTorch has. -EFBIG,
 * -ENOMEM. */
int torch_item_tensor(struct wfs_layout *layout, const struct wfs_tensor *tensor,
                      struct torch_item *ret, struct wfs_error *err);

/* Adds an item with a value of the graph of the plan at the end of its layout. The writer is
 * zeroed at first, the same for all values, and pickle_writer_done is due. Errors as those of a
 * plan. */
int torch_item_value(struct torch_plan *plan, struct pickle_writer *writer, uint32_t id,
                     struct torch_item *ret);

#endif
