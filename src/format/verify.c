/* SPDX-License-Identifier: MIT */
/*
 * Verification by the format that a catalog was loaded from.
 */
#include "format/format.h"

int wfs_verify(struct wfs_catalog *catalog, struct wfs_error *err)
{
    const struct wfs_format *format = wfs_format_by_name(catalog->format);
    return format == NULL || format->verify == NULL ? 0 : format->verify(catalog, err);
}
