/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints in several files. This room knows the index, the names of shards, how the tensors of
 * several files become one catalog, and how a set of files is published completely or not at all.
 * It does not know formats: files are loaded through the table that it is given.
 */
#ifndef WFS_SET_H
#define WFS_SET_H

#include <weightfs/shards.h>

#include "format/core/format.h"

/* Adds a tensor of another catalog, whose graph stays behind: its place is a number in that.
 * Returns NULL when out of memory. */
static inline struct wfs_tensor *set_add_tensor(struct wfs_catalog *catalog,
                                                const struct wfs_tensor *tensor)
{
    struct wfs_tensor *added = catalog_add(catalog);
    if (added == NULL)
        return NULL;
    *added = *tensor;
    added->place = 0;
    return added;
}

/* Shows the values of the first file of a format whose files describe themselves as parts, but for
 * those that do that. -ENOMEM. */
int set_show_values(struct wfs_catalog *catalog, const struct wfs_catalog *part);

/* Adds the tensors and values of a part of several with its name before theirs. -ENOMEM. */
int set_take_part(struct wfs_catalog *catalog, const struct wfs_catalog *part, const char *name);

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

/*
 * Loads the three files of one epoch of a training run of Burn as one catalog, under the names
 * model, optim and scheduler. Returns 1; 0 when the folder, which ends with a slash, is not one of
 * a run. -ENOENT when it has no such epoch, otherwise errors as the loader has them.
 */
int run_source_load(const char *folder, const struct load_context *context,
                    struct wfs_catalog **out, struct wfs_error *err);

/* As wfs_shards_new. */
int set_plan_new(const struct format_table *table, const struct wfs_format *format,
                 const struct wfs_catalog *catalog, uint64_t max_bytes, struct wfs_shards **out,
                 struct wfs_error *err);

/*
 * As wfs_save_clear. `own` is the text of the note that this process has written, which is cut up;
 * NULL: the note that is found is read, and trusted less.
 */
int set_note_clear(const struct format_table *table, const char *path, char *own,
                   struct wfs_error *err);

#endif
