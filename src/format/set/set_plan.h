/* SPDX-License-Identifier: MIT */
/*
 * The plan of a set: its files, before the first is written.
 */
#ifndef WFS_SET_PLAN_H
#define WFS_SET_PLAN_H

#include "format/set/shard_set.h"

/* As wfs_shards_new. */
int set_plan_new(const struct format_table *table, const struct wfs_format *format,
                 const struct wfs_catalog *catalog, uint64_t max_bytes, struct wfs_shards **out,
                 struct wfs_error *err);

#endif
