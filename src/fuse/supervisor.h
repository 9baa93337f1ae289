/* SPDX-License-Identifier: MIT */
/*
 * The supervisor: the process that mounts. It starts the worker that loads and serves, hands it the
 * device once the source is loaded, waits, unmounts however the worker ends, and returns the exit
 * code. It reads nothing of the source.
 */
#ifndef WFS_SUPERVISOR_H
#define WFS_SUPERVISOR_H

#include "fuse/mount_options.h"

#include <stdint.h>

/*
 * Runs until the mount is gone and returns the exit code, in both processes. report: a descriptor
 * to which one byte is written when the mount answers, after which both processes leave the
 * terminal; -1: stay in the foreground.
 */
int supervisor_run(const struct mount_options *options, int report);

#endif
