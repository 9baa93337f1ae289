/* SPDX-License-Identifier: MIT */
/*
 * Files of a sharded checkpoint, as a directory shows them.
 */
#ifndef WFS_SHARD_FILES_H
#define WFS_SHARD_FILES_H

#include "format/set/shard_index.h"
#include "catalog/catalog.h"

struct format_table;

enum { PATH_BYTES = 4352 }; /* PATH_MAX and the longest name */

struct shard_names {
    struct arena arena;
    const char **names; /* malloc'ed, in natural order */
    size_t n_names, n_room;
    uint64_t n_wanted; /* how many there should be; 0: the one name is an index or a whole file */
};

/* Everything up to the last slash, and that; empty when there is none. malloc'ed. */
char *shard_folder(const char *path);

/* "model-00001-of-00005.safetensors": some front, two numbers, an extension. */
bool shard_is_name(const struct format_table *table, const char *path);

/* "NAME.index.json" */
bool shard_is_index(const char *path);

/* Lists the names in the folder that is_wanted takes, but for hidden ones; NULL: all. -E2BIG,
 * -ENOMEM, and what opening the folder gives. */
int shard_names_list(struct shard_names *names, const char *folder,
                     bool (*is_wanted)(const char *name));

/*
 * What to load from a folder: its index, else all shards that belong together, else the one
 * checkpoint. like is the name of one of the shards, or NULL. -ENOENT, and -EINVAL names what there
 * is to choose from.
 */
int shard_names_find(struct shard_names *names, const struct format_table *table,
                     const char *folder, const char *like, struct wfs_error *err);
void shard_names_done(struct shard_names *names);

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
