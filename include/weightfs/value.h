/* SPDX-License-Identifier: MIT */
/*
 * What a checkpoint holds besides tensors, as JSON text. What Python alone can build is shown as
 * {"$python": "module.Class", ...}; docs/formats/pytorch.md has the whole notation.
 */
#ifndef WFS_VALUE_H
#define WFS_VALUE_H

#include <weightfs/catalog.h>

#pragma GCC visibility push(default)

/* Returns the number of the largest parts of the checkpoint without a tensor in them, in file
 * order. */
size_t wfs_catalog_n_values(const struct wfs_catalog *catalog);

/* Returns the dotted name of a part, spelled like the key of a tensor; borrowed. */
const char *wfs_catalog_value_name(const struct wfs_catalog *catalog, size_t i);

/* Makes JSON text that ends with a line feed and a NUL, malloc'ed. -ENOMEM, -EIO. */
int wfs_catalog_value_text(const struct wfs_catalog *catalog, size_t i, char **out,
                           size_t *ret_n_bytes);

/*
 * Makes the JSON text of what the dotted key names: a value, a part of one, or all values below it
 * as an object; of all values when key is NULL. -ENOENT: err lists what exists; -ENOMEM, -EIO.
 */
int wfs_catalog_config(const struct wfs_catalog *catalog, const char *key, char **out,
                       size_t *ret_n_bytes, struct wfs_error *err);

#pragma GCC visibility pop

#endif
