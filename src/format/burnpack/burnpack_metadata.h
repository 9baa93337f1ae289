/* SPDX-License-Identifier: MIT */
/*
 * The CBOR of a new Burnpack, and what it is made from.
 */
#ifndef WFS_BURNPACK_METADATA_H
#define WFS_BURNPACK_METADATA_H

#include "format/burnpack/burnpack_file.h"
#include "format/core/format.h"
#include "format/burnpack/cbor_out.h"
#include "format/core/layout.h"

/* A file that is being laid out. Arrays are in the arena of the layout. */
struct burnpack_plan {
    const struct wfs_catalog *catalog;
    struct wfs_layout *layout;
    struct wfs_error *err;
    const struct wfs_tensor **by_key;
    uint64_t *starts;              /* in the data; by position in the catalog */
    uint64_t end;                  /* of the data */
    struct wfs_text *meta;         /* by name */
    struct catalog_value *scalars; /* by name */
    size_t n_meta, n_scalars;
};

/* Reads text, the `param_id` of the tensor. -EINVAL. */
int burnpack_metadata_param_id(const struct wfs_tensor *tensor, const char *text, uint64_t *ret,
                               struct wfs_error *err);

/* Appends the CBOR. -EINVAL, -ENOMEM. */
int burnpack_metadata_write(const struct burnpack_plan *plan, struct strbuf *out);

#endif
