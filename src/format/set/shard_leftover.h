/* SPDX-License-Identifier: MIT */
/*
 * The note about a set in the making, which is written beside it before the first file is there:
 * whatever happens then, it says which files have to go. Those are the new ones where the index was
 * not published, and the old ones where it was.
 */
#ifndef WFS_SHARD_LEFTOVER_H
#define WFS_SHARD_LEFTOVER_H

#include "format/set/shard_present.h"

int shard_leftover_note(const struct wfs_shards *set, const struct shard_present *present,
                        const struct outfile *index, struct wfs_error *err);

/* As wfs_save_clear. */
int shard_leftover_clear(const struct format_table *table, const char *path, struct wfs_error *err);

#endif
