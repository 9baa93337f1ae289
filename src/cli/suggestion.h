/* SPDX-License-Identifier: MIT */
/*
 * Keys near to one that is not there.
 */
#ifndef WFS_SUGGESTION_H
#define WFS_SUGGESTION_H

#include <weightfs/catalog.h>

/* Up to three keys that differ from `key` by a few characters, or that contain it; the nearest
 * first. Returns how many. */
size_t suggestion_find(const struct wfs_catalog *catalog, const char *key, const char *ret[3]);

#endif
