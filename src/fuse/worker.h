/* SPDX-License-Identifier: MIT */
/*
 * The process that reads the source and answers the kernel. Its end is the end of the mount.
 */
#ifndef WFS_WORKER_H
#define WFS_WORKER_H

#include "fuse/target.h"

/*
 * Loads, says READY, serves the device that comes over the channel until it is unmounted or told to
 * end by SIGTERM from its parent, and commits what is pending. Returns the exit code; errors are
 * printed. is_background: leave the terminal once the mount answers.
 */
int worker_run(const struct mount_options *options, struct target *target, int channel,
               bool is_background);

#endif
