/* SPDX-License-Identifier: MIT */
/*
 * The note about a set in the making, which is written beside it before the first file is there:
 * whatever happens then, it says which files have to go. Those are the new ones where the index was
 * not published, and the old ones where it was.
 */
#ifndef WFS_SHARD_LEFTOVER_H
#define WFS_SHARD_LEFTOVER_H

#include "format/set/shard_present.h"

/* Writes the note and returns its text in *ret, malloc'ed. */
int shard_leftover_note(const struct wfs_shards *set, const struct shard_present *present,
                        const struct outfile *index, char **ret, struct wfs_error *err);

/* Adds which files were made, before they get their names, to the note and to its text. */
int shard_leftover_add(const struct wfs_shards *set, const struct outfile *index, char **text,
                       struct wfs_error *err);

/* As wfs_save_clear. `own` is the text of the note that this process has written, or NULL: then the
 * note that is found is read, and trusted less. */
int shard_leftover_clear(const struct format_table *table, const char *path, const char *own,
                         struct wfs_error *err);

#endif
