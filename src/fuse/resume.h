/* SPDX-License-Identifier: MIT */
/*
 * Resuming: what an earlier mount left in the staging directory, whether it fits, and what becomes
 * of it.
 */
#ifndef WFS_RESUME_H
#define WFS_RESUME_H

#include "fuse/target.h"

#include <weightfs/stage.h>

/*
 * Called before the source is loaded: opens the staging directory, reports why the last commit
 * failed, finishes one that was interrupted after its rename, and chooses the source to load. *out
 * is NULL for a read-only mount. Not 0: a line was printed, and this is the exit code.
 */
int resume_open(struct target *target, const struct mount_options *options, struct wfs_stage **out);

/*
 * Called after loading: checks that the edits are based on the source that base_text describes. Not
 * 0: as above.
 */
int resume_check(const struct target *target, const struct wfs_stage *stage, const char *base_text);

/* Logs that edits of an earlier mount are shown again. */
void resume_tell(const struct wfs_tree *tree);

#endif
