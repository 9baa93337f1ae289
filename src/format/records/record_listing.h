/* SPDX-License-Identifier: MIT */
/*
 * The listing of a record: its tensors and values, each with a dotted name.
 */
#ifndef WFS_RECORD_LISTING_H
#define WFS_RECORD_LISTING_H

#include "format/records/record_load.h"

/* What has no name because it is the whole record. */
#define RECORD_ITEM "item"

/* Adds all tensors, and the largest values without one, to the catalog. -EBADMSG, -EOPNOTSUPP,
 * -E2BIG, -ENOMEM. */
int record_listing_add(struct record_load *load);

#endif
