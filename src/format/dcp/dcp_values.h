/* SPDX-License-Identifier: MIT */
/*
 * The values of a checkpoint, and the one tree of names that they are in with the tensors.
 */
#ifndef WFS_DCP_VALUES_H
#define WFS_DCP_VALUES_H

#include "format/dcp/dcp_reading.h"

/*
 * Reads all values, nests them and the tensors, and lists everything in the catalog. The tensors of
 * the tables are ranges of the assembly. A value that cannot be read is left out, with a finding.
 * -E2BIG, -EOPNOTSUPP, -EIO, -ENOMEM.
 */
int dcp_values_list(struct dcp_reading *reading, struct source *assembly);

#endif
