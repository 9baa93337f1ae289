/* SPDX-License-Identifier: MIT */
/*
 * The items of a checkpoint, found by what they are: a key and the offset of a chunk, or a key
 * alone for a value.
 */
#ifndef WFS_DCP_ITEMS_H
#define WFS_DCP_ITEMS_H

#include "format/dcp/dcp_reading.h"

/* A zeroed struct is empty. */
struct dcp_items {
    const struct dcp_metadata *metadata;
    uint32_t *keys;           /* malloc'ed, by name of the metadata: the number of its key */
    struct dcp_claim *claims; /* malloc'ed, by key, of a key by offset */
    uint32_t *starts;         /* malloc'ed, by key: its first claim; one more at the end */
};

/* What an item is stored for: the chunk at an offset of a key, or the value of a key. */
struct dcp_claim {
    uint32_t item;
    uint32_t rank, offset; /* as in struct dcp_index */
};

/* Adds all items of the metadata to the tables. */
int dcp_items_add(struct dcp_items *items, struct dcp_reading *reading);

/* Finds the item of a chunk at an offset, or (rank DCP_NO_OFFSET) that of a value. It is found at
 * once where it is the n_before-th of the key. */
bool dcp_items_find(const struct dcp_items *items, uint32_t key, const int64_t *offset,
                    uint32_t rank, uint32_t n_before, uint32_t *ret);

/* Gives a trouble to items that are used and share bytes of a file. Errors as dcp_files_open. */
int dcp_items_check(struct dcp_reading *reading);

void dcp_items_done(struct dcp_items *items);

#endif
