/* SPDX-License-Identifier: MIT */
/*
 * A progress bar on stderr, where that is a terminal; and a place to notice that the user wants to
 * stop.
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

/* From here on the signals that would end the program wait, so that what is half written can be
 * removed. */
void progress_hold_signals(struct progress *progress);

/* As wfs_save calls it: ctx is the progress. -EINTR when a held signal waits. */
int progress_step(void *ctx, uint64_t n_done, uint64_t n_total);

/* Clears the bar and lets a waiting signal through: the program may end here. */
void progress_end(struct progress *progress);

#endif
