/* SPDX-License-Identifier: MIT */
/*
 * Where the edits of a mount go: the output file, what may be replaced there, and the staging
 * directory beside it.
 */
#ifndef WFS_TARGET_H
#define WFS_TARGET_H

#include "fuse/mount_options.h"

struct target {
    char *path;                      /* absolute, links resolved; NULL: the mount is read-only */
    char *stage_path;                /* absolute */
    const struct wfs_format *format; /* NULL: the one of the source */
    bool is_source;                  /* the source itself is replaced */
    bool is_published;               /* by this mount, at least once */
    enum wfs_replace replace;
    struct wfs_identity known; /* of what may be replaced */
};

/*
 * From the options alone; looks at names, opens nothing. Not 0: a line was printed, and this is the
 * exit code.
 */
int target_init(struct target *target, const struct mount_options *options);
void target_done(struct target *target);

/* After the source was loaded: it is still the one that target_init saw, and its format can be had.
 */
int target_check(struct target *target, const struct mount_options *options,
                 const struct wfs_catalog *catalog);

/* The file at the path is now the one that was just published. */
void target_published(struct target *target, const struct wfs_identity *identity);

/*
 * What edits stand on, for who finds them when the mount has died: the sources and the output, as
 * they are now. Yours to free; NULL when out of memory.
 */
char *target_base_text(const struct target *target, const struct mount_options *options,
                       const struct wfs_catalog *catalog);

#endif
