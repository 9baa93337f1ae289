/* SPDX-License-Identifier: MIT */
/*
 * The records of a new checkpoint: the storages that tensors are views of.
 */
#ifndef WFS_TORCH_RECORD_H
#define WFS_TORCH_RECORD_H

#include "format/pytorch/writer/torch_spelling.h"

/* Returns the record of a loaded storage, valid until the next one is made. NULL without memory. */
struct torch_record *torch_record_of(struct torch_plan *plan,
                                     const struct catalog_storage *storage);

/* Finds the view that shows the tensor: of a record that has its bytes already, or of a new one.
 * class is a value, whose storages have elements of that dtype or are untyped, or 0 for the usual
 * one. -ENOMEM. */
int torch_record_view(struct torch_plan *plan, const struct wfs_tensor *tensor, uint32_t class,
                      struct torch_view *ret);

/* Returns another record that has the bytes of the tensor already; NULL: none. */
const struct torch_record *torch_record_twin(const struct torch_plan *plan,
                                             const struct torch_record *record,
                                             const struct wfs_tensor *tensor);

/* Gives a record the bytes of the tensor, so that later tensors with the same bytes find it.
 * -ENOMEM. */
int torch_record_fill(struct torch_plan *plan, struct torch_record *record,
                      const struct wfs_tensor *tensor);

/* Returns whether PyTorch has the dtype of the tensor. */
bool torch_record_stores(const struct wfs_tensor *tensor);

/* Checks what only PyTorch demands of a tensor. -EOPNOTSUPP. */
int torch_record_check(const struct wfs_tensor *tensor, struct wfs_error *err);

#endif
