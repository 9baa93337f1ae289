/* SPDX-License-Identifier: MIT */
/*
 * Loading for a mount: from its options to the catalog that it shows. Warns of damage, guesses and
 * sources that are still being written.
 */
#ifndef WFS_LOADING_H
#define WFS_LOADING_H

#include "fuse/target.h"

#include <weightfs/view.h>

/*
 * Makes the view of the options and rules files, which the user wrote and which need no sandbox.
 * Not 0: a line was printed, and this is the exit code. The caller frees it.
 */
int loading_new_view(const struct mount_options *options, struct wfs_view **out);

/*
 * Not 0: a line was printed, and this is the exit code. The caller frees the report, which borrows
 * from the catalog, and the catalog; either may exist beside a failure.
 */
int loading_run(const struct mount_options *options, const struct target *target,
                const struct wfs_view *view, struct wfs_catalog **out, struct wfs_report **report);

#endif
