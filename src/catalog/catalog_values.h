/* SPDX-License-Identifier: MIT */
/*
 * The values of a catalog as JSON, in which its tensors have their keys.
 */
#ifndef WFS_CATALOG_VALUES_H
#define WFS_CATALOG_VALUES_H

#include "catalog/catalog.h"
#include "base/hash.h"
#include "value/value_json.h"

/* A writer of values, which stays where it is. */
struct catalog_writer {
    struct json_writer json;
    const struct wfs_catalog *catalog;
    uint32_t *tensors; /* positions in the catalog, sorted by value; made when one is needed */
    size_t n_tensors;
};

/*
 * Marks values, so that the texts of all together are not much longer than what was loaded: those
 * that do not fit appear as cut. -ENOMEM.
 */
int catalog_bound_values(struct wfs_catalog *catalog);

/* Makes a value of JSON text as value_edit does, beside an old value of the catalog; 0: none. */
int catalog_edit_value(struct wfs_catalog *catalog, uint32_t old, const char *file,
                       const char *text, size_t n_bytes, uint32_t *ret_id, struct wfs_error *err);

/*
 * wfs_catalog_digest of n tensors that come one by one, in the order of the listing, and of the
 * rest of a catalog. NULL, -ENOMEM: out of memory.
 */
struct hasher *catalog_digest_new(size_t n_tensors);
void catalog_digest_add(struct hasher *hasher, const struct wfs_tensor *tensor);
int catalog_digest_end(struct hasher *hasher, const struct wfs_catalog *catalog, uint64_t *ret);

#endif
