/* SPDX-License-Identifier: MIT */
/*
 * From the options of a mount to the catalog that it shows: load, apply the view, look whether
 * somebody still writes the source.
 */
#ifndef WFS_LOADING_H
#define WFS_LOADING_H

#include "fuse/target.h"

#include <weightfs/view.h>

/*
 * The rules that the options and the rules files give, which are the user's own words. Not 0: a
 * line was printed, and this is the exit code. Yours to free.
 */
int loading_new_view(const struct mount_options *options, struct wfs_view **out);

/*
 * Not 0: a line was printed, and this is the exit code. The catalog is yours, and so is the report,
 * which borrows from it; either may be there beside a failure.
 */
int loading_run(const struct mount_options *options, const struct target *target,
                const struct wfs_view *view, struct wfs_catalog **out, struct wfs_report **report);

#endif
