/* SPDX-License-Identifier: MIT */
/*
 * Inside of a set that is going to be saved: which tensors are in which file, which files are taken
 * over as they are, and what each is called.
 */
#ifndef WFS_SHARD_SET_H
#define WFS_SHARD_SET_H

#include <weightfs/shards.h>

#include "base/outfile.h"
#include "format/core/directory.h"

struct format_table;

struct shard {
    struct wfs_catalog *part;  /* its tensors; NULL in a directory */
    const struct source *home; /* the one file that has them all; NULL: several, or none */
    struct wfs_layout *layout; /* NULL: home holds exactly this and is taken over whole */
    struct wfs_catalog *found; /* what the file holds; NULL until it exists, and in a directory */
    const char *name;          /* of the file; in the arena */
    bool is_kept;              /* it is in the directory under that name already */
    struct outfile *outfile;
};

struct wfs_shards {
    struct arena arena;
    const struct format_table *table;
    const struct wfs_format *format;
    const struct wfs_catalog *catalog;
    const struct directory_functions *kind; /* NULL: files, and an index in JSON */
    struct directory directory;             /* has the layouts of that kind */
    struct shard *shards;                   /* malloc'ed */
    size_t n_shards, n_room;
    uint64_t n_bytes; /* that are written at most */
};

#endif
