/* SPDX-License-Identifier: MIT */
/*
 * The publication of what the tree of a mount shows: when there is something to commit, in which
 * order it is locked, checked, synced and saved, and how the outcome is shown.
 */
#ifndef WFS_PUBLICATION_H
#define WFS_PUBLICATION_H

#include "fuse/driver.h"
#include "program/commit.h"

struct publication_waiter {
    /* Called now and then while bytes are written. */
    void (*poll)(struct publication_waiter *waiter);
};

/*
 * Writes the output if edits are pending; with is_asked also if nothing was edited but the output
 * does not exist yet. summary gets a one-line summary of what was written, empty if there was
 * nothing to do. On failure returns a negative errno, with everything as before, the error logged
 * and its text in err. waiter may be NULL. The caller holds no lock.
 */
int publication_run(struct driver *driver, bool is_asked, struct publication_waiter *waiter,
                    char summary[COMMIT_TEXT_MAX], struct wfs_error *err);

/* A commit that is only tried. Problems get a line each; the caller holds no lock. */
struct publication_trial {
    void (*problem)(void *ctx, const char *text);
    void *ctx;
};

/*
 * Finds out what publication_run would do when it is asked now: returns its errno, and summary is
 * its line. Nothing is written, and nothing is synced.
 */
int publication_try(struct driver *driver, const struct publication_trial *trial,
                    char summary[COMMIT_TEXT_MAX]);

#endif
