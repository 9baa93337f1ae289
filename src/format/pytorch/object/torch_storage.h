/* SPDX-License-Identifier: MIT */
/*
 * Storages: the bytes that tensors are views of. What a storage is called, and streams, are read in
 * files below; where the containers keep the bytes, they say themselves.
 */
#ifndef WFS_TORCH_STORAGE_H
#define WFS_TORCH_STORAGE_H

#include "format/pytorch/object/torch.h"

/* Finds the storage that a value stands for. Returns 1, perhaps with a trouble; 0 when the value is
 * not a storage; a negative error. */
int torch_storage_of(struct torch *torch, uint32_t id, struct torch_storage *ret);

/* Lists in the catalog where the bytes of all storages are, for a writer of the same graph. -EIO,
 * -ENOMEM. */
int torch_storage_list(struct torch *torch);

/* Finds the storage that a value stands for among those of the catalog. NULL: it is not a storage,
 * or has no bytes. */
const struct catalog_storage *torch_storage_at(const struct wfs_catalog *catalog, uint32_t id);

#endif
