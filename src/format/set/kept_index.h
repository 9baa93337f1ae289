/* SPDX-License-Identifier: MIT */
/*
 * Indexes that stay beside an index when it is replaced: backups of it, and others that may name
 * the same files. What they name must stay, too.
 */
#ifndef WFS_KEPT_INDEX_H
#define WFS_KEPT_INDEX_H

#include "format/set/shard_present.h"

struct kept_index {
    struct shard_index files;
    bool is_backup; /* by its name, of the index beside which it is */
};

/* A zeroed one has none. */
struct kept_indexes {
    struct kept_index *items; /* malloc'ed */
    size_t n, n_room;
    bool is_unsure; /* one cannot be read: it may name any file */
};

/*
 * Reads those beside the index `name`, which need not exist, in the folder, which ends with a slash
 * or is empty. kind is as in struct wfs_shards. Symbolic links are not followed. -ENOMEM, or why
 * the folder cannot be listed; kept_indexes_done is due in any case.
 */
int kept_indexes_read(struct kept_indexes *kept, const struct directory_functions *kind,
                      const char *folder, const char *name, struct wfs_error *err);

/* Returns true if one of them names the file, or may do so. */
bool kept_indexes_need(const struct kept_indexes *kept, const char *file);

void kept_indexes_done(struct kept_indexes *kept);

#endif
