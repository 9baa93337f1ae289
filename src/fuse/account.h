/* SPDX-License-Identifier: MIT */
/*
 * What a commit wrote and what it had no room for: in the report, and as one line.
 */
#ifndef WFS_ACCOUNT_H
#define WFS_ACCOUNT_H

#include "fuse/driver.h"

/* The tree is held alone. Texts are copied. */
void account_report(struct driver *driver, const struct wfs_report_commit *commit,
                    const struct wfs_fit *fit);

/* "3 edits: 12 tensors, 4096 bytes; left out: 1 value". */
void account_tell(const struct wfs_report_commit *commit, const struct wfs_fit *fit,
                  char text[COMMIT_TEXT_MAX]);

#endif
