/* SPDX-License-Identifier: MIT */
/*
 * The comparison of bytes that no tensor shows.
 */
#ifndef WFS_DIFF_HIDDEN_H
#define WFS_DIFF_HIDDEN_H

#include "cli/jsonout.h"

#include <weightfs/catalog.h>

/* Prints a line for each storage with different hidden bytes, or an array in json unless that is
 * NULL; *ret_n counts them. *ret_failed is the catalog whose bytes cannot be read. -EIO, -ENOMEM.
 */
int diff_hidden_print(const struct wfs_catalog *a, const struct wfs_catalog *b,
                      struct jsonout *json, uint64_t *ret_n, const struct wfs_catalog **ret_failed);

#endif
