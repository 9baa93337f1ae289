/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint that is going to be several files: which tensors are in which, which files are taken
 * over as they are, and what each is called.
 */
#ifndef WFS_SHARD_SET_H
#define WFS_SHARD_SET_H

#include "base/outfile.h"
#include "format/core/format.h"
#include "format/set/shard_index.h"

struct shard {
    struct wfs_catalog *part; /* its tensors */
    const struct source
        *home; /* where they all were, and lie still; NULL: in several files, or in none */
    struct wfs_layout *layout; /* NULL: home holds just this and is taken over whole */
    struct wfs_catalog *found; /* what the file holds; NULL until it is there */
    const char *name;          /* of the file; in the arena */
    bool is_kept;              /* it is in the directory under that name already */
    struct outfile *outfile;
};

struct wfs_shards {
    struct arena arena;
    const struct wfs_format *format;
    const struct wfs_catalog *catalog;
    struct shard *shards; /* malloc'ed */
    size_t n_shards, n_room;
    uint64_t n_bytes; /* that are to be written at most */
};

/* Cuts the catalog: as its tensors were, or where max_bytes is not 0 in pieces of at most that. */
int shard_cut(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err);

/*
 * 1 when the home of the shard holds just what the shard is to hold, lying as it lies: *out is what
 * is in it then. 0 when it does not, or when there is no home.
 */
int shard_is_untouched(const struct wfs_shards *set, const struct shard *shard,
                       struct wfs_catalog **out, struct wfs_error *err);

/*
 * What is in the directory: the index at the path and the files that it names. A zeroed one is
 * none.
 */
struct shard_present {
    bool has_index;
    struct shard_index index;
    struct source *source;        /* of the index */
    struct wfs_identity *regular; /* malloc'ed, for each shard of the index; zeros: not a file */
};

int shard_present_read(struct shard_present *present, const char *path, int directory,
                       struct wfs_error *err);
void shard_present_done(struct shard_present *present);

/* Gives each shard a name that is free in the directory, or the one under which it is there. */
int shard_name_all(struct wfs_shards *set, const struct shard_present *present,
                   const struct outfile *index, struct wfs_error *err);

/* The text of the index, in the arena. */
int shard_index_write(struct wfs_shards *set, const char **ret, size_t *ret_n,
                      struct wfs_error *err);

/*
 * What a set in the making consists of is written beside it, before the first file is there:
 * whatever happens then, wfs_save_clear knows which files are to go. It removes the new ones where
 * the index was not published, and the old ones where it was.
 */
int shard_leftover_note(const struct wfs_shards *set, const struct shard_present *present,
                        const struct outfile *index, struct wfs_error *err);

#endif
