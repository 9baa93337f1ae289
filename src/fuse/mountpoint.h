/* SPDX-License-Identifier: MIT */
/*
 * The directory that is mounted on: what may be one, making and removing it, clearing a dead mount,
 * and why mounting on it failed.
 */
#ifndef WFS_MOUNTPOINT_H
#define WFS_MOUNTPOINT_H

#include "fuse/mount_options.h"

struct mountpoint {
    char *path;      /* absolute, links resolved */
    bool is_missing; /* not there before the mount; removed again after it */
    bool is_made;
    uint64_t id; /* of the mount; 0: not known */
};

/*
 * Fills it in and clears a dead mount away. False: a line was printed. A missing directory is only
 * noted.
 */
bool mountpoint_init(struct mountpoint *mountpoint, const char *path);
void mountpoint_done(struct mountpoint *mountpoint);

/* The directory is the mount point or below it, as far as ".." leads. */
bool mountpoint_hides(const struct mountpoint *mountpoint, const char *directory);

/* Makes a missing one. False: a line was printed. */
bool mountpoint_make(struct mountpoint *mountpoint);

/* Removes what was made. */
void mountpoint_remove(struct mountpoint *mountpoint);

/* Once it is mounted on, and nobody can have mounted there again. */
void mountpoint_remember(struct mountpoint *mountpoint);

/* Somebody else has unmounted what was mounted: what is there now is not ours. */
bool mountpoint_is_gone(const struct mountpoint *mountpoint);

/* Is what was mounted there still, when its driver has ended? */
bool mountpoint_is_left(const struct mountpoint *mountpoint);

/* Unmounts, lazily when it is in use. True when it was not. */
bool mountpoint_unmount(const struct mountpoint *mountpoint);

/*
 * Lets the kernel read further ahead of readers than its default; only root may. The kernel sets it
 * when the driver greets, so this comes after. Does not touch the mount, which would make it busy.
 */
void mountpoint_raise_readahead(const struct mountpoint *mountpoint);

/* One line on why mounting failed; text is what libfuse said, perhaps nothing. */
void mountpoint_explain(const struct mountpoint *mountpoint, const struct mount_options *options,
                        const char *text);

#endif
