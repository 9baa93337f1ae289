/* SPDX-License-Identifier: MIT */
/*
 * The non-tensor contents of two checkpoints, compared: metadata as text, values as JSON.
 */
#ifndef WFS_DIFF_TEXTS_H
#define WFS_DIFF_TEXTS_H

#include <weightfs/catalog.h>

#include "cli/jsonout.h"

/*
 * Prints the differences: as lines if json is NULL, otherwise as a member "texts" of the open
 * object. *ret_n counts them. -ENOMEM.
 */
int diff_texts_print(const struct wfs_catalog *a, const struct wfs_catalog *b, struct jsonout *json,
                     uint64_t *ret_n);

#endif
