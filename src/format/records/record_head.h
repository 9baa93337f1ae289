/* SPDX-License-Identifier: MIT */
/*
 * The outermost map of a record: metadata, item, and the marker _b.
 */
#ifndef WFS_RECORD_HEAD_H
#define WFS_RECORD_HEAD_H

#include "format/records/record_load.h"

/* Checks the root of the graph, adds the metadata to the catalog and finds the item. -EBADMSG. */
int record_head_take(struct record_load *load, uint32_t root);

#endif
