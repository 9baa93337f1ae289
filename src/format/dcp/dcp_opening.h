/* SPDX-License-Identifier: MIT */
/*
 * The opening of an item: what it is expected to be, and messages that name the part and its file.
 */
#ifndef WFS_DCP_OPENING_H
#define WFS_DCP_OPENING_H

#include "base/limits.h"
#include "format/dcp/dcp_tensor.h"
#include "tensor/catalog.h"

struct dcp_window;

struct dcp_opening {
    const struct dcp_tensor *tensor;
    const int64_t *box; /* of the part */
    const struct dcp_item *item;
    struct source *file;
    const char *file_name; /* below the directory */
    const struct limits *limits;
    struct dcp_window *window; /* kept from one opening to the next */
};

/* Fails about the part: "its chunk at [2, 0] in 'FILE': WHAT". */
int dcp_opening_fail(const struct dcp_opening *opening, int code, const char *what,
                     struct wfs_error *err);

/* Compares what is stored with what is expected. -EBADMSG. */
int dcp_opening_compare(const struct dcp_opening *opening, enum wfs_dtype dtype,
                        const uint64_t *dims, uint32_t rank, struct wfs_error *err);

#endif
