/* SPDX-License-Identifier: MIT */
/*
 * The checksums of the stored items.
 */
#ifndef WFS_DCP_VERIFY_H
#define WFS_DCP_VERIFY_H

#include "format/core/format.h"

/* As verify_parts of struct format_functions. */
int dcp_verify(const struct wfs_catalog *from, struct wfs_catalog *catalog, struct wfs_error *err);

#endif
