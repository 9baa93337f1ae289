/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint in several files that is going to be saved: which files are written, which files of
 * the source are taken over, and the index that names them. format.h makes one (wfs_shards_new).
 */
#ifndef WFS_SHARDS_H
#define WFS_SHARDS_H

#include <weightfs/catalog.h>
#include <weightfs/output.h>

struct wfs_shards;

#pragma GCC visibility push(default)

void wfs_shards_free(struct wfs_shards *shards);
uint64_t wfs_shards_n_bytes(const struct wfs_shards *shards);
size_t wfs_shards_n_files(const struct wfs_shards *shards); /* without the index */

/* As wfs_layout_is_large, of any of the files. */
bool wfs_shards_is_large(const struct wfs_shards *shards);

/*
 * Publishes the index at path, and the files beside it under names that are free there. A file of
 * the source that holds exactly the tensors of one of the new files is reflinked or hard-linked, or
 * left where it is in the same directory. Files that the previous index at path names and the new
 * one does not are removed at the end. As wfs_save in all else: `published` is the index, until
 * whose rename nothing has changed. Can be called once.
 */
int wfs_shards_save(struct wfs_shards *shards, const char *path,
                    const struct wfs_save_options *options, struct wfs_save_report *report,
                    struct wfs_error *err);

#pragma GCC visibility pop

#endif
