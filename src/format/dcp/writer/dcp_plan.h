/* SPDX-License-Identifier: MIT */
/*
 * The plan of a distributed checkpoint of one rank: its leaves, and the files that they are in.
 */
#ifndef WFS_DCP_PLAN_H
#define WFS_DCP_PLAN_H

#include "format/core/directory.h"
#include "format/dcp/writer/dcp_leaves.h"

/* For struct directory_functions. */
int dcp_plan_make(struct directory *directory, uint64_t max_bytes, struct wfs_error *err);
void dcp_plan_done(struct directory *directory);

/* "__0_7.distcp" */
const char *dcp_plan_name(struct arena *arena, uint64_t number);
bool dcp_plan_is_name(const char *name);

/* Returns the leaves of a plan, with their places. */
const struct dcp_leaves *dcp_plan_leaves(const struct directory *directory);

/* Returns whether DCP can hold the dtype of the tensor. */
bool dcp_plan_stores(const struct wfs_tensor *tensor);

#endif
