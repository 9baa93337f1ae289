/* SPDX-License-Identifier: MIT */
/*
 * The files that items are in: named by the metadata, opened beneath the directory and nowhere
 * else.
 */
#ifndef WFS_DCP_FILES_H
#define WFS_DCP_FILES_H

#include "format/dcp/dcp_reading.h"

/* Makes the table of files, one for each path of the metadata. -ENOMEM. */
int dcp_files_make(struct dcp_reading *reading);

/* Opens a file once; what prevents that becomes its trouble. -E2BIG above the limit of files,
 * -EMFILE, -ENOMEM. */
int dcp_files_open(struct dcp_reading *reading, uint32_t file);

/* Opens the file of an item that is needed, and checks that the item is inside of it; else the item
 * has a trouble. Errors as dcp_files_open. */
int dcp_files_check(struct dcp_reading *reading, uint32_t item);

#endif
