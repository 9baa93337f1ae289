/* SPDX-License-Identifier: MIT */
/*
 * Inside of a set that is going to be saved: which tensors are in which file, which files are taken
 * over as they are, and what each is called.
 */
#ifndef WFS_SHARD_SET_H
#define WFS_SHARD_SET_H

#include <weightfs/shards.h>
#include <weightfs/strbuf.h>

#include "base/outfile.h"
#include "format/set/shard_files.h"

struct format_table;

struct shard {
    struct wfs_catalog *part;  /* its tensors; NULL in a directory */
    const struct source *home; /* the one file that has them all; NULL: several, or none */
    struct wfs_layout *layout; /* NULL: home holds exactly this and is taken over whole */
    struct wfs_catalog *found; /* what the file holds; NULL until it exists, and in a directory */
    const char *name;          /* of the file; in the arena */
    bool is_kept;              /* it is in the directory under that name already */
    bool is_beside;            /* home is a file beside the checkpoint, and keeps its name */
    struct outfile *outfile;
};

/* What is done with the parts of a pipeline, each of which is a checkpoint itself. */
struct pipeline_functions {
    int (*save)(struct wfs_shards *set, const char *path, const struct wfs_save_options *options,
                struct wfs_save_report *report, struct wfs_error *err);
    void (*done)(struct wfs_shards *set);
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
    struct pipeline_part *parts; /* malloc'ed, in place of shards; NULL: it is not a pipeline */
    size_t n_parts, n_files;     /* of them in all */
    const struct pipeline_functions *functions; /* for parts */
    uint64_t n_bytes;                           /* that are written at most */
};

/* ---- the index, and what the files are called ---- */

/* What the directory of an output holds: the index there, the files that it names, and the indexes
 * that stay. A zeroed one is an empty directory. */
struct set_present {
    struct shard_index index;
    struct kept_indexes kept;
    struct wfs_identity *regular; /* malloc'ed, for each shard of the index; zeros: not a file */
};

/* Reads it. No index is present where a description is damaged. set_present_done is due in any
 * case. */
int set_present_read(struct set_present *present, const struct wfs_shards *set, const char *path,
                     int directory, struct wfs_error *err);
void set_present_done(struct set_present *present);

/* Gives each shard a name that neither a file nor an index in the directory has, or the name under
 * which it exists there. */
int set_index_name(const struct set_present *present, struct wfs_shards *set,
                   const struct outfile *index, struct wfs_error *err);

/* Returns true for a name that set_index_name could choose beside the index of that name. */
bool set_index_is_name(const char *index, const char *name);

/*
 * Makes the text of the index, or the description of a directory, in the arena of the set, whose
 * files have their names. -EINVAL names a key that an index cannot have, -E2BIG, -ENOMEM.
 */
int set_index_make(struct wfs_shards *set, const char **ret, size_t *ret_n, struct wfs_error *err);

/* Returns the names of all files; the array is malloc'ed. NULL without memory. */
const char **set_index_names(const struct wfs_shards *set);

/*
 * ---- the note ----
 *
 * The note about a set in the making is written beside it before the first file is there: whatever
 * happens then, it says which files have to go. Those are the new ones where the index was not
 * published, and the old ones where it was. set.h has what clears them.
 */

/* Writes the note about the index. note gets its text; empty: there is none. */
int set_note_write(const struct wfs_shards *set, const struct set_present *present,
                   const struct outfile *index, struct strbuf *note, struct wfs_error *err);

/* Adds which files were made, before they get their names, to the note and to its text. */
int set_note_add(const struct wfs_shards *set, const struct outfile *index, struct strbuf *note,
                 struct wfs_error *err);

#endif
