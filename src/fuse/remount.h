/* SPDX-License-Identifier: MIT */
/*
 * mount -o remount: the kernel makes a mount read-only, or writable again.
 */
#ifndef WFS_REMOUNT_H
#define WFS_REMOUNT_H

#include "fuse/mount_options.h"

/*
 * Remounts what is at the mount point with the access of the options, and as it is otherwise.
 * Returns the exit code; not 0: a line was printed.
 */
int remount_run(const struct mount_options *options);

#endif
