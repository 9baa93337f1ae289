/* SPDX-License-Identifier: MIT */
/*
 * A commit: a catalog, or what a tree shows, becomes a new checkpoint. One struct holds what to
 * write and in which format, then the snapshot, what the format cannot store, the layout, and the
 * account of what was written. The caller decides when, holds the locks of the tree, and prints.
 */
#ifndef WFS_COMMIT_H
#define WFS_COMMIT_H

#include <weightfs/format.h>
#include <weightfs/patch.h>
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
    const char *large_option; /* the option that allows an output much larger than its input; NULL:
                                 it was given */
    bool is_patch;            /* the edits of the tree are written, not its snapshot */
    bool has_digests;         /* of what they replace: reads that */

    /* Gets what the tree has that cannot be written, for a trial; NULL: the first such thing is the
     * error. */
    const struct wfs_tree_problems *problems;

    /* Made. */
    struct wfs_patch *patch;   /* or NULL */
    struct wfs_layout *layout; /* of one file, or NULL */
    struct wfs_shards *shards; /* of several, or NULL */
    struct wfs_fit fit;        /* what the format cannot store */
    struct wfs_report_commit account;
    uint64_t n_dangers; /* counted by the caller: names in the output that may run code */
};

/*
 * Takes the snapshot and makes it fit the format, which is enough to know what would be left out.
 * Returns 0 or a negative errno; either way commit_done must follow.
 */
int commit_fit(struct commit *commit, struct wfs_error *err);

/*
 * Does the same and lays out the output, whose size is then in the account. -EFBIG if the output is
 * much larger than its input. With a tree, the layout is valid until that changes.
 */
int commit_plan(struct commit *commit, struct wfs_error *err);

/*
 * Plans as commit_plan does, and reports each problem, not only the first; problems must be given.
 * Returns 0 when nothing but the output itself is left to be checked, or a negative errno.
 */
int commit_try(struct commit *commit, struct wfs_error *err);

/*
 * Writes what was planned to path: the file, or the index with its shards beside it. Otherwise as
 * wfs_save; report may be NULL.
 */
int commit_save(struct commit *commit, const char *path, const struct wfs_save_options *options,
                struct wfs_save_report *report, struct wfs_error *err);

/* Frees what was made, but not what was given, so that another commit may follow. */
void commit_done(struct commit *commit);

/* Adds what is left out to the report and, once something was saved, the account. -ENOMEM. */
int commit_report(const struct commit *commit, struct wfs_report *report);

/* Writes one line for logs: "3 edits: 12 tensors, 4096 bytes; left out: 1 value". */
void commit_summary(const struct commit *commit, char text[COMMIT_TEXT_MAX]);

/* Returns the name of a kind of what is left out. */
const char *commit_kind_name(enum wfs_fit_kind kind);

/* Calls visit with what is left out: one line for each kind, with the first names. Without memory
 * some are missing. */
void commit_each_left_out(const struct commit *commit, void (*visit)(void *ctx, const char *line),
                          void *ctx);

#endif
