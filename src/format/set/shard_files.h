/* SPDX-License-Identifier: MIT */
/*
 * Files of a sharded checkpoint, as a directory shows them.
 */
#ifndef WFS_SHARD_FILES_H
#define WFS_SHARD_FILES_H

#include "catalog/catalog.h"
#include "format/core/folder.h"
#include "format/set/shard_index.h"

struct format_table;

enum { PATH_BYTES = 4352 }; /* PATH_MAX and the longest name */

/* "model-00001-of-00005.safetensors": some front, two numbers, an extension. */
bool shard_is_name(const struct format_table *table, const char *path);

/* The file that describes a pipeline. */
#define PIPELINE_INDEX "model_index.json"
bool pipeline_is_index(const char *path);

/* "NAME.index.json" */
bool shard_is_index(const char *path);

/*
 * Finds what to load from a folder: the name that is known for the folders of some program, else
 * its index, else all shards that belong together, else the one checkpoint. like is the name of one
 * of the shards, or NULL. *ret_n_wanted: how many shards there should be; 0: the one name is an
 * index or a whole file. -EISDIR, and -EINVAL names what there is to choose from.
 */
int shard_names_find(struct folder_names *names, uint64_t *ret_n_wanted,
                     const struct format_table *table, const char *folder, const char *like,
                     struct wfs_error *err);

/*
 * Makes the names of all shards from that of one, where no folder can be listed. -EINVAL for
 * another name, -E2BIG for more than n_most, -ENOMEM.
 */
int shard_names_make(struct folder_names *names, const struct format_table *table, const char *name,
                     uint64_t n_most, struct wfs_error *err);

/* Refuses an index or a file at the path that the directory would not be read by: -EEXIST; -ENOMEM.
 */
int shard_files_check_index(const struct format_table *table, const char *path,
                            struct wfs_error *err);

/* Adds a finding about the checkpoints and folders beside the file that was chosen. -ENOMEM. */
int shard_files_tell_rest(const struct format_table *table, const char *folder, const char *file,
                          struct wfs_catalog *catalog);

/*
 * Indexes and descriptions that stay beside an index when it is replaced: backups of it, and others
 * that may name the same files. What they name must stay, and no other file may get a name that
 * they have. A zeroed struct has none.
 */
struct kept_indexes {
    struct kept_index {
        struct shard_index files;
        bool is_backup; /* by its name, of the index beside which it is */
    } * items;          /* malloc'ed */
    size_t n, n_room;
    bool is_unsure; /* one cannot be read: it may name any file */
};

/*
 * Reads those beside the index at the path, which need not exist; symbolic links are followed. What
 * an interrupted save of the index left does not count. -ENOMEM, or why the folder cannot be
 * listed; kept_indexes_done is due in any case.
 */
int kept_indexes_read(struct kept_indexes *kept, const struct format_table *table, const char *path,
                      struct wfs_error *err);

/* Adds the index at the path itself. kind is as in struct wfs_shards. 1; 0, errors: see
 * shard_index_list. */
int kept_indexes_add(struct kept_indexes *kept, const struct directory_functions *kind,
                     const char *path, struct wfs_error *err);

/* Returns true if one of them names the file. */
bool kept_indexes_name(const struct kept_indexes *kept, const char *file);

/* Returns true if one of them names the file, or may do so. */
bool kept_indexes_need(const struct kept_indexes *kept, const char *file);

void kept_indexes_done(struct kept_indexes *kept);

/* Adds findings about checkpoints beside the index at the path that neither it nor another index
 * there names. -ENOMEM. */
int shard_files_tell_strays(const struct format_table *table, const char *path,
                            const struct shard_index *index, struct wfs_catalog *catalog);

#endif
