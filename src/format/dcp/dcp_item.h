/* SPDX-License-Identifier: MIT */
/*
 * Opening an item: where in the file the elements of a part lie, and that they are what the
 * metadata describes.
 */
#ifndef WFS_DCP_ITEM_H
#define WFS_DCP_ITEM_H

#include "format/dcp/dcp_opening.h"

/*
 * Finds the elements: *ret_data is their place in the file, or *ret_odd a catalog with one tensor
 * that has them, where they are not dense, or are to be changed. -EBADMSG, -EOPNOTSUPP, -E2BIG,
 * -EIO: err names the part and its file; -ENOMEM.
 */
int dcp_item_open(const struct dcp_opening *opening, uint64_t *ret_data,
                  struct wfs_catalog **ret_odd, struct wfs_error *err);

#endif
