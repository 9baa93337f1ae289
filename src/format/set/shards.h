/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints in several files: an index, the directory that holds it, or shards that only their
 * names tell.
 */
#ifndef WFS_SHARDS_H
#define WFS_SHARDS_H

#include "format/core/format.h"

/* Loads what is at path: a directory, an index, a shard with its siblings where the context says
 * so, or else one file. */
int shards_load(const char *path, const struct load_context *context, struct wfs_catalog **out,
                struct wfs_error *err);

#endif
