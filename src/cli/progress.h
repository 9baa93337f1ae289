/* SPDX-License-Identifier: MIT */
/*
 * A progress bar on stderr if that is a terminal, and a place to notice that the user asked the
 * program to stop.
 */
#ifndef WFS_PROGRESS_H
#define WFS_PROGRESS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* the word before the bar */
    bool is_shown;    /* stderr is a terminal */
    int64_t drawn_at; /* ns, of the last redraw; 0: nothing is drawn */
    bool has_hold;
    sigset_t held;   /* signals that wait until the end */
    sigset_t before; /* the mask to go back to */
};

void progress_start(struct progress *progress, const char *what);

/*
 * Blocks the signals that would end the program, so that a half-written file can be removed first.
 */
void progress_hold_signals(struct progress *progress);

/*
 * The progress callback of wfs_save; ctx is the progress. Returns -EINTR when a blocked signal is
 * pending.
 */
int progress_step(void *ctx, uint64_t n_done, uint64_t n_total);

/* Clears the bar and unblocks the signals: the program may end here. */
void progress_end(struct progress *progress);

#endif
