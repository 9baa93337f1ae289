/* SPDX-License-Identifier: MIT */
/*
 * The partition of a catalog into the files of a set.
 */
#ifndef WFS_PARTITION_H
#define WFS_PARTITION_H

#include "format/set/shard_set.h"

/*
 * Adds the shards with their tensors: each where it was, or with max_bytes not 0 in files of at
 * most that. -EINVAL without tensors, -E2BIG for too many files, -ENOMEM.
 */
int partition_make(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err);

#endif
