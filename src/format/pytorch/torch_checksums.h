/* SPDX-License-Identifier: MIT */
/*
 * The checksums of all records of a zip, which loading leaves alone.
 */
#ifndef WFS_TORCH_CHECKSUMS_H
#define WFS_TORCH_CHECKSUMS_H

#include "tensor/catalog.h"
#include <weightfs/error.h>

/* For struct wfs_format: adds a finding for each record that does not match. -EBADMSG, -EIO,
 * -ENOMEM. */
int torch_checksums_verify(const struct source *source, struct wfs_catalog *catalog,
                           struct wfs_error *err);

#endif
