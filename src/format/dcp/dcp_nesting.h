/* SPDX-License-Identifier: MIT */
/*
 * The nested dicts and lists that were saved: planner_data gives each key its path in them.
 */
#ifndef WFS_DCP_NESTING_H
#define WFS_DCP_NESTING_H

#include "format/dcp/dcp_reading.h"

/*
 * Makes the root in the graph of the catalog: leaves[i] is the value of key i; 0: it is left out. A
 * key whose path does not fit it, or contradicts another, stays at the top under its own name.
 * -ENOMEM.
 */
int dcp_nesting_make(struct dcp_reading *reading, const uint32_t *leaves, uint32_t *ret_root);

#endif
