/* SPDX-License-Identifier: MIT */
/*
 * DCP_SHARDING_INFO: the text in the metadata of a safetensors file by which its tensors are parts
 * of larger ones. JSON: {"KEY": {"saved_offsets": [0, 4]}, ...}.
 */
#ifndef WFS_DCP_SHARDING_H
#define WFS_DCP_SHARDING_H

#include "base/text_index.h"
#include "tensor/catalog.h"

/* Where a part begins. */
struct dcp_sharding_offsets {
    uint32_t rank;
    uint32_t first; /* in the numbers */
    bool is_bad;    /* they are not integers of 64 bits */
};

/* A zeroed struct is empty. */
struct dcp_sharding {
    char *text;
    struct text_index keys; /* numbers of the offsets */
    struct dcp_sharding_offsets *offsets;
    size_t n_offsets, n_offset_room;
    int64_t *numbers;
    size_t n_numbers, n_number_room;
};

/* 1: read; 0: the catalog has no such text. -EBADMSG: it is not JSON of that form; -ENOMEM. */
int dcp_sharding_read(struct dcp_sharding *sharding, const struct wfs_catalog *catalog,
                      struct wfs_error *err);

/* Returns where the part with that key begins; NULL: it does not name the key. */
const struct dcp_sharding_offsets *dcp_sharding_find(const struct dcp_sharding *sharding,
                                                     const char *key);
void dcp_sharding_done(struct dcp_sharding *sharding);

#endif
