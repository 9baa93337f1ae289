/* SPDX-License-Identifier: MIT */
/*
 * A line of progress on stderr if that is a terminal: bytes, rate and time left, for work that
 * takes longer than half a second; and a place to notice that the user asked the program to stop.
 *
 *     struct progress progress;
 *     progress_start(&progress, "reading", n_bytes);
 *     for each piece of the work
 *         progress_add(&progress, n_bytes_of_piece);
 *     progress_end(&progress);
 *
 * The line is drawn by a thread of its own: between two calls it goes on with the bytes that are
 * read from files.
 */
#ifndef WFS_PROGRESS_H
#define WFS_PROGRESS_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct wfs_remote;

struct progress {
    bool is_shown; /* stderr is a terminal */
    bool has_hold;
    sigset_t held;   /* signals that wait until the end */
    sigset_t before; /* the mask to go back to */
    /* Private. */
    const char *what; /* the word before the numbers */
    int64_t started_at;
    atomic_uint_fast64_t n_done, n_total; /* bytes; n_total is 0: not known */
    atomic_uint_fast64_t n_read;          /* by the process when n_done was set */
    uint64_t n_drawn;                     /* by the thread: a line never goes back */
    const struct wfs_remote *_Atomic remote;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool is_over;
};

/* n_total: bytes, 0 where they are not known. */
void progress_start(struct progress *progress, const char *what, uint64_t n_total);

/*
 * Blocks the signals that would end the program, so that a half-written file can be removed first.
 */
void progress_hold_signals(struct progress *progress);

/* Sets how many bytes are done. The progress callback of wfs_save; ctx is the progress. Returns
 * -EINTR when a blocked signal is pending. */
int progress_step(void *ctx, uint64_t n_done, uint64_t n_total);

/*
 * Has a process of its own close the descriptor of a large output that was given up: this one need
 * not wait for the disk. The abandon callback of wfs_save; ctx is not used.
 */
void progress_abandon(void *ctx, int fd);

/* Shows, from now on, the bytes that were fetched for sources on the network, of those that are
 * needed as far as that is known; NULL: there are none. */
void progress_follow(struct progress *progress, const struct wfs_remote *remote);

/* Adds bytes that are done. */
void progress_add(struct progress *progress, uint64_t n_bytes);

/* Clears the line and unblocks the signals: the program may end here. */
void progress_end(struct progress *progress);

#endif
