/* SPDX-License-Identifier: MIT */
/*
 * The layout of a new checkpoint: a zip with its pickle and its records.
 */
#ifndef WFS_TORCH_LAYOUT_H
#define WFS_TORCH_LAYOUT_H

#include "format/pytorch/writer/torch_plan.h"

/* Writes the pickle of the plan's root, and lays everything out. -EIO, -E2BIG, -EFBIG, -ENOMEM. */
int torch_layout_make(struct torch_plan *plan);

struct pickle_output;
struct pickle_writer;
struct zip_writer;

/* The steps of that, for other zips with the folder of the plan: the record data.pkl, a small one
 * with a text, and data/KEY with the bytes of a storage. */
int torch_layout_add_pickle(struct torch_plan *plan, struct zip_writer *zip,
                            const struct pickle_output *output);
int torch_layout_add_text(struct torch_plan *plan, struct zip_writer *zip, const char *name,
                          const char *text);
int torch_layout_add_data(struct torch_plan *plan, struct zip_writer *zip,
                          const struct torch_record *storage);

/* For the writer of a pickle: the values that are written as storages. ctx is the plan. */
bool torch_layout_is_storage(const void *ctx, uint32_t id);
int torch_layout_put_storage(struct pickle_writer *writer, uint32_t id);

/* Fails with what code means for a layout: out of memory, or too large. */
int torch_layout_fail(struct torch_plan *plan, int code);

#endif
