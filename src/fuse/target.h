/* SPDX-License-Identifier: MIT */
/*
 * The target: where the edits of a mount go. The output, which file may be replaced there, and the
 * staging directory beside it.
 */
#ifndef WFS_TARGET_H
#define WFS_TARGET_H

#include "fuse/mount_options.h"
#include "program/destination.h"
#include "program/place.h"

struct target {
    struct place source;
    struct destination output;    /* what was asked for; its format is known after target_check */
    struct place place;           /* of the output: one file, or the index of several */
    const char *path;             /* of that; NULL: the mount is read-only */
    char *stage_path;             /* absolute */
    bool has_new_directory;       /* the directory of path was created for it */
    bool is_published;            /* by this mount, at least once */
    bool is_forced;               /* damage of what an earlier mount left is accepted */
    bool is_moved;                /* and another source */
    char *boot;                   /* identifies this boot of the machine; NULL: not known */
    char *cwd;                    /* working directory of the user */
    struct wfs_remote *remote;    /* what fetches URLs; NULL: nothing does */
    char *kept_source;            /* to load in place of the source, or NULL */
    const char *allows_replacing; /* the option that allows to replace it */
};

/*
 * Finds the places that the options name, before any process leaves the directory it was started
 * in. Not 0: a line was printed, and this is the exit code.
 */
int target_init(struct target *target, const struct mount_options *options);

/* Removes the directory that was created for an output, if it is empty: the mount has failed. */
void target_abandon(struct target *target);
void target_done(struct target *target);

/* Checks, after the source was loaded, that it is the file that target_init found and that the
 * format of the output is known. Not 0: a line was printed, and this is the exit code. */
int target_check(struct target *target, const struct mount_options *options,
                 const struct wfs_catalog *catalog);

/*
 * A confined commit can write to the directory that was found, not to another one with its path:
 * -EACCES.
 */
int target_check_directory(const struct target *target, struct wfs_error *err);

/* Notes which file was just published at the path. */
void target_published(struct target *target, const struct wfs_identity *identity);

/*
 * Returns what edits are based on, for the process that finds them after the mount has died. Lines
 * that begin with '#' record how it was mounted; the others must be the same for the edits to fit.
 * The caller frees it; NULL: out of memory.
 */
char *target_base_text(const struct target *target, const struct mount_options *options,
                       const struct wfs_catalog *catalog);

#endif
