/* SPDX-License-Identifier: MIT */
/*
 * What is present in the directory of an output: the index and the files that it names, and which
 * names are free.
 */
#ifndef WFS_SHARD_PRESENT_H
#define WFS_SHARD_PRESENT_H

#include "format/set/shard_index.h"
#include "format/set/shard_set.h"

/* A zeroed one is an empty directory. */
struct shard_present {
    struct shard_index index;
    struct wfs_identity *regular; /* malloc'ed, for each shard of the index; zeros: not a file */
};

/*
 * Reads which files the index at the path names or, where kind is not NULL, the description of a
 * directory. 1; 0: it is neither, or not a regular file. It names nothing then, nor after an error.
 * shard_index_done is due after 1.
 */
int shard_present_list(struct shard_index *ret, const struct directory_functions *kind,
                       const char *path, struct wfs_error *err);

/* The same with a look at the files. Nothing is present where there is no index. */
int shard_present_read(struct shard_present *present, const struct directory_functions *kind,
                       const char *path, int directory, struct wfs_error *err);

/* Returns true for a name that shard_present_name could choose beside the index of that name. */
bool shard_present_is_name(const char *index, const char *name);

void shard_present_done(struct shard_present *present);

/* Gives each shard a free name in the directory, or the name under which it exists there. */
int shard_present_name(const struct shard_present *present, struct wfs_shards *set,
                       const struct outfile *index, struct wfs_error *err);

#endif
