/* SPDX-License-Identifier: MIT */
/*
 * The publication of what the tree of a mount shows: when there is something to commit, in which
 * order it is locked, checked, synced and saved, and how the outcome is shown.
 */
#ifndef WFS_PUBLICATION_H
#define WFS_PUBLICATION_H

#include "fuse/driver.h"
#include "program/commit.h"

/* Whoever waits for a publication; NULL: nobody does. */
struct publication_waiter {
    void (*poll)(void *ctx); /* called now and then while bytes are written */
    void *ctx;
};

/*
 * Writes the output if edits are pending; with is_asked also if nothing was edited but the output
 * does not exist yet. summary gets a one-line summary of what was written, empty if there was
 * nothing to do. On failure returns a negative errno, with everything as before, the error logged
 * and its text in err. The caller holds no lock.
 */
int publication_run(struct driver *driver, bool is_asked, const struct publication_waiter *waiter,
                    char summary[COMMIT_TEXT_MAX], struct wfs_error *err);

/*
 * Finds out what publication_run would do when it is asked now: returns its errno, summary is its
 * line, and *ret_account what that counts. Each problem gets a line; nothing is written, and
 * nothing is synced.
 */
int publication_try(struct driver *driver, const struct wfs_tree_problems *problems,
                    char summary[COMMIT_TEXT_MAX], struct wfs_report_commit *ret_account);

#endif
