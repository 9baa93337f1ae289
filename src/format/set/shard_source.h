/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints in several files. This room knows the index, the names of shards, how the tensors of
 * several files become one catalog, and how a set of files is published completely or not at all.
 * It does not know formats: files are loaded through the table that it is given.
 */
#ifndef WFS_SHARD_SOURCE_H
#define WFS_SHARD_SOURCE_H

#include "tensor/catalog.h"

struct load_context;
struct source;

/*
 * Loads what is at path: a directory, an index, a shard with its siblings where the context says
 * so, or else one file.
 */
int shard_source_load(const char *path, const struct load_context *context,
                      struct wfs_catalog **out, struct wfs_error *err);

/* Loads an open file, which is taken over: an index, or a checkpoint by itself. */
int shard_source_load_file(struct source *source, const struct load_context *context,
                           struct wfs_catalog **out, struct wfs_error *err);

/* Fails because an epoch was asked of what has none. */
int shard_source_fail_epoch(struct wfs_error *err);

#endif
