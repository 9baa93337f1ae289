/* SPDX-License-Identifier: MIT */
/*
 * The safetensors file that ends a .distcp file, where the writer was set to that format. All its
 * tensors are items with the same offset.
 */
#ifndef WFS_DCP_WINDOW_H
#define WFS_DCP_WINDOW_H

#include "format/dcp/dcp_opening.h"
#include "format/dcp/dcp_sharding.h"

/* The one that was read last. A zeroed struct is none. */
struct dcp_window {
    const struct source *file; /* NULL: none */
    uint64_t offset;
    struct wfs_catalog *catalog;
    struct dcp_sharding sharding;
};

void dcp_window_done(struct dcp_window *window);

/* Returns whether a safetensors file may begin at an offset of a file. -EIO. */
int dcp_window_probe(const struct source *file, uint64_t offset);

/* Finds the elements of the part in it, as dcp_item_open. */
int dcp_window_find(const struct dcp_opening *opening, uint64_t *ret_data, struct wfs_error *err);

#endif
