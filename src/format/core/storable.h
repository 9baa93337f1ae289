/* SPDX-License-Identifier: MIT */
/*
 * What a format can store: the checks of a tensor and of metadata before a file is laid out, so
 * that no file is written that cannot be read back.
 */
#ifndef WFS_STORABLE_H
#define WFS_STORABLE_H

#include "tensor/catalog.h"

/*
 * Checks key, dtype, shape and size against each other and against the format. -EINVAL,
 * -EOPNOTSUPP, or what the format's own check returns.
 */
int storable_check_tensor(const struct wfs_format *format, const struct wfs_tensor *tensor,
                          struct wfs_error *err);

/* Checks that names and values of the metadata are UTF-8. -EINVAL. */
int storable_check_metadata(const struct wfs_catalog *catalog, struct wfs_error *err);

#endif
