/* SPDX-License-Identifier: MIT */
/*
 * Pipelines of diffusers: several models, each in a folder of its own, as one tree of tensors whose
 * keys begin with the name of the folder.
 */
#ifndef WFS_PIPELINE_H
#define WFS_PIPELINE_H

#include <weightfs/shards.h>

#include "format/core/format.h"
#include "format/set/shard_files.h"

/* Loads the pipeline that a file, which stays the caller's, describes. Errors as a loader has them.
 */
int pipeline_source_load(struct source *source, const struct load_context *context,
                         struct wfs_catalog **out, struct wfs_error *err);

/*
 * Lays out each part of a pipeline as the checkpoint that it is. Saving it writes the parts into
 * the folder of the path, each in a folder of its own, and last the file that describes them. As
 * wfs_shards_new; -EINVAL: a tensor is in none.
 */
int pipeline_plan_new(const struct format_table *table, const struct wfs_format *format,
                      const struct wfs_catalog *catalog, uint64_t max_bytes,
                      struct wfs_shards **out, struct wfs_error *err);

#endif
