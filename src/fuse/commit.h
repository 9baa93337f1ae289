/* SPDX-License-Identifier: MIT */
/*
 * Publishing what the tree shows: when there is something to write, in which order it is locked,
 * checked, synced and saved, and how the outcome is told.
 */
#ifndef WFS_COMMIT_H
#define WFS_COMMIT_H

#include "fuse/driver.h"

struct commit_waiter {
    /* Called now and then while bytes are written. */
    void (*poll)(struct commit_waiter *waiter);
};

/*
 * Writes the output when edits are pending; with is_asked also when nothing was edited and the
 * output is not there yet. told is the one line that says what was written, empty when there was
 * nothing to do. On failure, a negative errno, everything is as before and has been logged; err has
 * the sentence. waiter may be NULL. Holds no lock when called.
 */
int commit_run(struct driver *driver, bool is_asked, struct commit_waiter *waiter,
               char told[COMMIT_TEXT_MAX], struct wfs_error *err);

#endif
