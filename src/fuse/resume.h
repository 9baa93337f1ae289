/* SPDX-License-Identifier: MIT */
/*
 * What an earlier mount left in the staging directory: whether it fits, and what becomes of it.
 */
#ifndef WFS_RESUME_H
#define WFS_RESUME_H

#include "fuse/target.h"

#include <weightfs/stage.h>

/*
 * Before the source is loaded: opens the staging directory, tells how the last commit failed,
 * finishes one that was cut off behind its rename, and chooses the source to load. *out is NULL for
 * a read-only mount. Not 0: a line was printed, and this is the exit code.
 */
int resume_open(struct target *target, struct wfs_stage **out);

/* Afterwards: do the edits stand on what base_text says? */
int resume_check(const struct target *target, const struct wfs_stage *stage, const char *base_text);

/* Once the edits are shown: says so. */
void resume_tell(const struct wfs_tree *tree);

#endif
