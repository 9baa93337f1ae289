/* SPDX-License-Identifier: MIT */
/*
 * The mount point: whether a directory can be one, making and removing it, clearing a dead mount,
 * and the reason when mounting on it fails.
 */
#ifndef WFS_MOUNTPOINT_H
#define WFS_MOUNTPOINT_H

#include "fuse/mount_options.h"

struct mountpoint {
    char *path;      /* absolute, links resolved */
    bool is_missing; /* did not exist before the mount; removed again after it */
    bool is_made;
    uint64_t id; /* of the mount; 0: not known */
};

/*
 * Finds the directory and clears a dead mount. Returns false when a line was printed. A missing
 * directory is only noted.
 */
bool mountpoint_init(struct mountpoint *mountpoint, const char *path);
void mountpoint_done(struct mountpoint *mountpoint);

/* Returns true when the directory is the mount point or below it, by following "..". */
bool mountpoint_hides(const struct mountpoint *mountpoint, const char *directory);

/* Makes a missing one. Returns false when a line was printed. */
bool mountpoint_make(struct mountpoint *mountpoint);

/* Removes the directory if mountpoint_make made it. */
void mountpoint_remove(struct mountpoint *mountpoint);

/* Remembers the number of the mount, right after mounting. */
void mountpoint_remember(struct mountpoint *mountpoint);

/* Returns true when another process has unmounted it: what is at the path now is not ours. */
bool mountpoint_is_gone(const struct mountpoint *mountpoint);

/* Returns true when the mount still exists after its driver has ended. */
bool mountpoint_is_left(const struct mountpoint *mountpoint);

/* Unmounts, lazily when it is in use. Returns true when it was not. */
bool mountpoint_unmount(const struct mountpoint *mountpoint);

/*
 * Raises the kernel's read-ahead above its default; only root can. The kernel sets the default when
 * the driver answers its greeting, so call this afterwards. Does not touch the mount, which would
 * make it busy.
 */
void mountpoint_raise_readahead(const struct mountpoint *mountpoint);

/* Prints one line on why mounting failed; text is the message of libfuse, may be empty. */
void mountpoint_explain(const struct mountpoint *mountpoint, const struct mount_options *options,
                        const char *text);

#endif
