/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints in the directory of a set that no index names.
 */
#ifndef WFS_SHARD_STRAYS_H
#define WFS_SHARD_STRAYS_H

#include "format/set/shard_index.h"
#include "tensor/catalog.h"

struct format_table;

/* Findings about checkpoints beside the index at the path that neither it nor another index there
 * names. -ENOMEM. */
int shard_tell_strays(const struct format_table *table, const char *path,
                      const struct shard_index *index, struct wfs_catalog *catalog);

#endif
