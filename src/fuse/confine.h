/* SPDX-License-Identifier: MIT */
/*
 * The sandbox of a process that is to read a source and write an output: the worker of a mount, and
 * a recovery that publishes.
 */
#ifndef WFS_CONFINE_H
#define WFS_CONFINE_H

#include "fuse/mount_options.h"
#include "fuse/target.h"

#include <weightfs/view.h>

/* Limits, signals, and what is loaded at its first use. */
void confine_prepare(const struct mount_options *options);

/*
 * What the user named is to be read; beside the output and the edits all is to be written. There is
 * no way back. 0, or an exit code; *ret_name as sandbox_enter has it.
 */
int confine(const struct mount_options *options, const struct target *target,
            const struct wfs_view *view, const char **ret_name);

#endif
