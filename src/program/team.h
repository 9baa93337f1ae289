/* SPDX-License-Identifier: MIT */
/*
 * The threads of a verb that reads much: as many as there are processors, and no more than 8. They
 * take the parts of what was shared first, so that a large tensor has all of them when the others
 * are done.
 */
#ifndef WFS_TEAM_H
#define WFS_TEAM_H

#include <weightfs/interruption.h>

#include <pthread.h>

enum { TEAM_MOST = 8 };

/* Work in parts; it lives where it was begun, until team_finish. */
struct team_share {
    void (*part)(void *ctx, size_t i);
    void *ctx;
    size_t n, n_taken, n_done;
    struct team_share *next;
};

struct team {
    struct wfs_team team; /* first: its function is given that */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct team_share *first; /* of those with parts that nobody has taken */
    size_t n_threads;
    pthread_t threads[TEAM_MOST];
    bool is_started, is_over;
};

void team_start(struct team *team);
void team_end(struct team *team);

/*
 * Has the threads work on the parts; the caller is one of them only while it shares. They start
 * with the first work. Where some cannot be started there are fewer; where there is none, the parts
 * are done when it returns.
 */
void team_begin(struct team *team, struct team_share *share);

/* Waits until all parts are done. */
void team_finish(struct team *team, struct team_share *share);

#endif
