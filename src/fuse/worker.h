/* SPDX-License-Identifier: MIT */
/*
 * The worker: the process that reads the source and answers the kernel. The mount ends with it.
 */
#ifndef WFS_WORKER_H
#define WFS_WORKER_H

#include "fuse/target.h"

/*
 * Loads, reports READY, serves the device that comes over the channel until it is unmounted or gets
 * SIGTERM from its parent, then commits pending edits. Prints errors and returns the exit code.
 * keeper: a channel to it. is_background: leave the terminal once the mount answers.
 */
int worker_run(const struct mount_options *options, struct target *target, int channel, int keeper,
               bool is_background);

#endif
