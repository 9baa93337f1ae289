/* SPDX-License-Identifier: MIT */
/*
 * Reads by a thread that holds a lock. Others must not wait for the network because of it: between
 * wfs_unfetched_begin and wfs_unfetched_end, a read of what has not been fetched yet fails with
 * -EAGAIN. Without the lock, wfs_unfetched_fetch then fetches it, and all is done again.
 */
#ifndef WFS_UNFETCHED_H
#define WFS_UNFETCHED_H

#include <stdbool.h>

#pragma GCC visibility push(default)

void wfs_unfetched_begin(void);
void wfs_unfetched_end(void);

/*
 * Returns false when nothing was missing since the last call, and the result counts. Else fetches
 * it, for as long as that takes or until the thread is interrupted, and returns true. Where it
 * cannot be fetched, the reads of the next try fail with the reason.
 */
bool wfs_unfetched_fetch(void);

/* Forgets what was missing: the caller has another way to wait for it. */
void wfs_unfetched_forget(void);

#pragma GCC visibility pop

#endif
