/* SPDX-License-Identifier: MIT */
/*
 * The text of a new index, or the description of a directory.
 */
#ifndef WFS_SET_INDEX_H
#define WFS_SET_INDEX_H

#include "format/set/shard_set.h"

/*
 * Makes the text, in the arena of the set, whose files have their names. -EINVAL names a key that
 * an index cannot have, -E2BIG, -ENOMEM.
 */
int set_index_make(struct wfs_shards *set, const char **ret, size_t *ret_n, struct wfs_error *err);

/* Returns the names of all files; the array is malloc'ed. NULL without memory. */
const char **set_index_names(const struct wfs_shards *set);

#endif
