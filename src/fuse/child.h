/* SPDX-License-Identifier: MIT */
/*
 * A process that confines itself for one task. The process that waits for it is its keeper.
 */
#ifndef WFS_CHILD_H
#define WFS_CHILD_H

#include "fuse/mount_options.h"
#include "fuse/target.h"

/* `keeper` is the channel to the keeper. Returns an exit code. */
typedef int child_task(void *ctx, int keeper);

/*
 * Returns the exit code of the task, which runs in a process of its own that is prepared to be
 * confined; 128 and more: the number of the signal that killed it, and a line was printed.
 */
int child_run(const struct mount_options *options, const struct target *target, child_task *task,
              void *ctx);

#endif
