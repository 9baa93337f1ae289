/* SPDX-License-Identifier: MIT */
/*
 * From the metadata to the tables of an assembly: keys, tensors, and their parts.
 */
#ifndef WFS_DCP_TABLE_H
#define WFS_DCP_TABLE_H

#include "format/dcp/dcp_reading.h"

/* Fills the tables; what is wrong with one thing becomes its trouble. -EBADMSG, -E2BIG, -ENOMEM. */
int dcp_table_fill(struct dcp_reading *reading);

/* The tables are not freed when they have become an assembly's. */
void dcp_reading_done(struct dcp_reading *reading);

#endif
