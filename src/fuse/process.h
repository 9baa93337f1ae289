/* SPDX-License-Identifier: MIT */
/*
 * The processes of a mount: the command that the user typed waits until the mount answers or has
 * failed, and those that it started stay. One that reads a source and writes an output confines
 * itself: the worker of a mount, and a recovery that publishes.
 */
#ifndef WFS_PROCESS_H
#define WFS_PROCESS_H

#include <weightfs/view.h>
#include "fuse/mount_options.h"
#include "fuse/sandbox/sandbox.h"
#include "fuse/target.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Forks. In the child *ret_report is where process_leave reports, and all inherited descriptors
 * but `kept` are closed. In the parent it is -1, and the result is the exit code of the command.
 */
int process_to_background(int kept, int *ret_report);

/* Leaves terminal, directory and standard descriptors; messages go to the system log. */
void process_detach(void);

/* Detaches, and reports to the command that the mount answers. Returns false when it is gone. */
bool process_leave(int report);

/*
 * Sets limits and signals, and loads libraries that would be loaded at their first use. Not 0: a
 * line was printed, and this is the exit code.
 */
int process_prepare(const struct mount_options *options);

/*
 * Enters a sandbox in which the files that the user named can be read, and the directories of the
 * output and of the edits written; what fetches URLs is started before. Cannot be undone. Not 0: a
 * line was printed, and this is the exit code. *ret is set as by sandbox_enter.
 */
int process_confine(const struct mount_options *options, struct target *target,
                    const struct wfs_view *view, enum sandbox_state *ret);

/* `keeper` is the channel to the keeper. Returns an exit code. */
typedef int process_task(void *ctx, int keeper);

/*
 * Returns the exit code of the task, which runs in a process of its own that is prepared to be
 * confined; 128 and more: the number of the signal that killed it, and a line was printed.
 */
int process_run_child(const struct mount_options *options, const struct target *target,
                      process_task *task, void *ctx);

/*
 * Loads, reports READY, serves the device that comes over the channel until it is unmounted or gets
 * SIGTERM from its parent, then commits pending edits. Prints errors and returns the exit code.
 * keeper: a channel to it. is_background: leave the terminal once the mount answers.
 */
int worker_run(const struct mount_options *options, struct target *target, int channel, int keeper,
               bool is_background);

/*
 * Runs until the mount is gone and returns the exit code, in both processes. report: a descriptor
 * to which one byte is written when the mount answers, after which both processes leave the
 * terminal; -1: stay in the foreground.
 */
int supervisor_run(const struct mount_options *options, int report);

#endif
