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
 * Writes the output when edits are pending; with is_asked also when nothing was edited and the
 * output is not there yet. told is the one line that says what was written, empty when there was
 * nothing to do. On failure, a negative errno, everything is as before and has been logged; err has
 * the sentence. waiter may be NULL. Holds no lock when called.
 */
int publication_run(struct driver *driver, bool is_asked, struct publication_waiter *waiter,
                    char told[COMMIT_TEXT_MAX], struct wfs_error *err);

#endif
