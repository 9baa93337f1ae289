/* SPDX-License-Identifier: MIT */
/*
 * What two checkpoints hold besides tensors, compared: metadata by its texts, values by their JSON.
 */
#ifndef WFS_DIFF_TEXTS_H
#define WFS_DIFF_TEXTS_H

#include <weightfs/catalog.h>

#include "cli/jsonout.h"

/*
 * Tells what differs, in lines when json is NULL, else as a member "texts" of the open object.
 * *ret_n counts the differences. -ENOMEM.
 */
int diff_texts_print(const struct wfs_catalog *a, const struct wfs_catalog *b, struct jsonout *json,
                     uint64_t *ret_n);

#endif
