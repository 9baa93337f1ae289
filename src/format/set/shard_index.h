/* SPDX-License-Identifier: MIT */
/*
 * The index of a sharded checkpoint: which key lies in which file.
 */
#ifndef WFS_SHARD_INDEX_H
#define WFS_SHARD_INDEX_H

#include "base/source.h"
#include "base/text_index.h"
#include "format/core/directory.h"

enum { SHARD_INDEX_MAX = 256 << 20 }; /* bytes that are written or read back */

struct shard_key {
    const char *name;
    uint32_t shard;
    bool is_found; /* in its shard */
};

/* Names are in text. A zeroed struct is an index without anything. */
struct shard_index {
    char *text;
    struct shard_key *keys; /* in the order of the file */
    size_t n_keys, n_key_room;
    const char **shards; /* file names, each once, in natural order */
    size_t n_shards, n_shard_room;
    struct text_index by_key;
    struct text_index by_shard; /* has the names; their numbers hold while keys are added */
};

/*
 * 1: the source is an index and was read; 0: it is something else, or larger than n_most. A file
 * name that is not plain (a path, "..") is -EBADMSG; so is a duplicate key.
 */
int shard_index_read(struct shard_index *index, const struct source *source, uint64_t n_most,
                     struct wfs_error *err);

/* Adds a key by hand; texts are borrowed. 1: added; 0: it exists, in the file *ret_shard; -ENOMEM.
 */
int shard_index_add(struct shard_index *index, const char *key, const char *shard,
                    uint32_t *ret_shard);

/* Whether the index has a file of that name. */
bool shard_index_has_file(const struct shard_index *index, const char *name);

/* NULL when the index does not have it. */
struct shard_key *shard_index_find(const struct shard_index *index, const char *key);
void shard_index_done(struct shard_index *index);

/*
 * Reads which files the index at the path names or, where kind is not NULL, the description of a
 * directory. 1; 0: it is not an index, or not a regular file. It names nothing then, nor after an
 * error: which files a damaged one names is not known. shard_index_done is due after 1.
 */
int shard_index_list(struct shard_index *ret, const struct directory_functions *kind,
                     const char *path, struct wfs_error *err);

#endif
