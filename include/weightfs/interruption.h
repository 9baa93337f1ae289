/* SPDX-License-Identifier: MIT */
/*
 * Interruption of long computations, and how far they are. The thread that starts one registers a
 * question; functions that may take long ask it now and then, and return -EINTR when the answer is
 * yes.
 */
#ifndef WFS_INTERRUPTION_H
#define WFS_INTERRUPTION_H

#include <stdbool.h>
#include <stdint.h>

struct wfs_interruption {
    /* Returns true when nobody needs the result any more. Called often. */
    bool (*is_wanted)(void *ctx);
    void *ctx;
};

#pragma GCC visibility push(default)

/* Sets the question of the calling thread, which is borrowed; NULL: none. */
void wfs_interruption_set(const struct wfs_interruption *interruption);

/* Asks it: -EINTR, or 0. */
int wfs_interruption_check(void);

/* Returns the bytes that all threads have read from files of checkpoints so far. */
uint64_t wfs_n_read(void);

#pragma GCC visibility pop

#endif
