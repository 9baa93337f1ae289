/* SPDX-License-Identifier: MIT */
/*
 * Where the edits of a mount go: the output file, what may be replaced there, and the staging
 * directory beside it.
 */
#ifndef WFS_TARGET_H
#define WFS_TARGET_H

#include "fuse/mount_options.h"
#include "program/place.h"

struct target {
    struct place source;
    struct place output;             /* one file, or the index of several */
    const char *path;                /* of the output; NULL: the mount is read-only */
    char *stage_path;                /* absolute */
    const struct wfs_format *format; /* NULL: the one of the source */
    bool is_set;                     /* path is an index, and several files are beside it */
    uint64_t max_shard;              /* bytes of tensors in each; 0: as they are */
    bool is_source;                  /* the source itself is replaced */
    bool is_published;               /* by this mount, at least once */
    bool is_taken;                   /* something is at the path that may not be replaced */
    bool is_forced;                  /* damage of what an earlier mount left is accepted */
    bool is_moved;                   /* and another source */
    char *boot;                      /* of this run of the machine */
    char *cwd;                       /* of who mounted */
    char *kept_source;               /* to be loaded instead of the one that was typed, or NULL */
    enum wfs_replace replace;
    struct wfs_identity known; /* of what may be replaced */
};

/*
 * Finds the places that the options name, before any process leaves the directory it was started
 * in. Not 0: a line was printed, and this is the exit code.
 */
int target_init(struct target *target, const struct mount_options *options);
void target_done(struct target *target);

/* After the source was loaded: it is still the one that target_init saw, and its format can be had.
 */
int target_check(struct target *target, const struct mount_options *options,
                 const struct wfs_catalog *catalog);

/*
 * A commit writes to the directory that was found, not to another one with its path: that is
 * -EACCES.
 */
int target_check_directory(const struct target *target, struct wfs_error *err);

/* The file at the path is now the one that was just published. */
void target_published(struct target *target, const struct wfs_identity *identity);

/*
 * What edits stand on, for who finds them when the mount has died. Lines that begin with '#' tell
 * how it was mounted; the others must be the same for the edits to fit. Yours to free; NULL when
 * out of memory.
 */
char *target_base_text(const struct target *target, const struct mount_options *options,
                       const struct wfs_catalog *catalog);

#endif
