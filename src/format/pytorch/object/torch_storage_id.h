/* SPDX-License-Identifier: MIT */
/*
 * The ids by which a pickle names storages.
 */
#ifndef WFS_TORCH_STORAGE_ID_H
#define WFS_TORCH_STORAGE_ID_H

#include "format/pytorch/object/torch.h"

/* Returns whether this persistent value names a storage, well described or not. */
bool torch_is_storage(const struct graph *graph, uint32_t id);

/* Takes the id of a persistent value apart. Returns false and sets *ret_trouble (in the arena of
 * the catalog) when it does not describe a storage that can be read. */
bool torch_storage_id_parse(struct torch *torch, uint32_t id, struct torch_storage_id *ret,
                            const char **ret_trouble);

/* Returns the size of an element of a storage class; packed elements are counted in bytes. */
uint64_t torch_storage_item(const struct torch_global *class);

/* Compares the declared size with the one in the file, and cuts the view out of the whole. */
void torch_storage_fit(struct torch *torch, const struct torch_storage_id *id,
                       struct torch_storage *ret);

#endif
