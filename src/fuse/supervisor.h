/* SPDX-License-Identifier: MIT */
/*
 * The process that mounts. It starts the worker that loads and serves, gives it the device once the
 * source is loaded, waits, unmounts whatever happens to the worker, and gives the exit status. It
 * reads nothing of the source.
 */
#ifndef WFS_SUPERVISOR_H
#define WFS_SUPERVISOR_H

#include "fuse/mount_options.h"

/*
 * report: where one byte goes when the mount answers, after which both processes leave the
 * terminal; -1: stay in the foreground. Runs until the mount is gone and returns the exit code, in
 * either process.
 */
int supervisor_run(const struct mount_options *options, int report);

#endif
