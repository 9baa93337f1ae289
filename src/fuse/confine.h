/* SPDX-License-Identifier: MIT */
/*
 * The sandbox of a process that reads a source and writes an output: the worker of a mount, and a
 * recovery that publishes.
 */
#ifndef WFS_CONFINE_H
#define WFS_CONFINE_H

#include "fuse/mount_options.h"
#include "fuse/sandbox/sandbox.h"
#include "fuse/target.h"

#include <weightfs/view.h>

/*
 * Sets limits and signals, and loads libraries that would be loaded at their first use. Not 0: a
 * line was printed, and this is the exit code.
 */
int confine_prepare(const struct mount_options *options);

/*
 * Enters a sandbox in which the files that the user named can be read, and the directories of the
 * output and of the edits written; what fetches URLs is started before. Cannot be undone. Not 0: a
 * line was printed, and this is the exit code. *ret is set as by sandbox_enter.
 */
int confine(const struct mount_options *options, struct target *target, const struct wfs_view *view,
            enum sandbox_state *ret);

#endif
