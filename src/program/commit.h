/* SPDX-License-Identifier: MIT */
/*
 * A commit: a catalog, or what a tree shows, becomes a new checkpoint. One struct goes down once:
 * it is given what is to be written and as what, and gets the snapshot, what the format has no room
 * for, the layout, and the account of what was written. Whoever commits decides when, holds the
 * locks of the tree, and prints.
 */
#ifndef WFS_COMMIT_H
#define WFS_COMMIT_H

#include <weightfs/format.h>
#include <weightfs/tree.h>
#include <weightfs/view.h>

/* Bytes of the line that says what a commit wrote. */
enum { COMMIT_TEXT_MAX = 512 };

struct commit {
    /* Given. Everything is borrowed. */
    const struct wfs_tree *tree; /* its snapshot is written; NULL: the catalog below */
    struct wfs_catalog *catalog; /* is rewritten; with a tree its snapshot, freed by commit_done */
    const struct wfs_format *format;
    struct wfs_fit_options fit_options; /* is_set: several files with an index */
    uint64_t max_shard;                 /* bytes of tensors in each of them; 0: as they are */
    const char *large_option; /* how the user allows a file much larger than what it is made of;
                                 NULL: they did */

    /* Made. */
    struct wfs_layout *layout; /* of one file, or NULL */
    struct wfs_shards *shards; /* of several, or NULL */
    struct wfs_fit fit;        /* what the format has no room for */
    struct wfs_report_commit account;
};

/*
 * Takes the snapshot and makes it fit the format; enough to know what would be left out. A negative
 * errno; commit_done is due in any case.
 */
int commit_fit(struct commit *commit, struct wfs_error *err);

/*
 * The same, and lays out the output; the account then says how much it is. -EFBIG for an output
 * much larger than what it is made of. With a tree the layout is good until that changes.
 */
int commit_plan(struct commit *commit, struct wfs_error *err);

/*
 * Writes what was planned to path: the file, or the index with the files beside it. As wfs_save;
 * report may be NULL.
 */
int commit_save(struct commit *commit, const char *path, const struct wfs_save_options *options,
                struct wfs_save_report *report, struct wfs_error *err);

/* Frees what was made; what was given stays, and another commit may follow. */
void commit_done(struct commit *commit);

/* Adds what is left out to the report, and the account once something was saved. -ENOMEM. */
int commit_report(const struct commit *commit, struct wfs_report *report);

/* Writes one line for logs: "3 edits: 12 tensors, 4096 bytes; left out: 1 value". */
void commit_summary(const struct commit *commit, char text[COMMIT_TEXT_MAX]);

/* Prints what is left out, a line for each kind with the first names, to stdout. */
void commit_print_fit(const struct commit *commit);

#endif
