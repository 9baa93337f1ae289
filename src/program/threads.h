/* SPDX-License-Identifier: MIT */
/*
 * Makes a result for each work of a workload in several threads, those of a group once together,
 * and hands the results on in order.
 */
#ifndef WFS_THREADS_H
#define WFS_THREADS_H

#include <weightfs/interruption.h>
#include <weightfs/workload.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * The threads of a verb that reads much: as many as there are processors, and no more than 8. They
 * take the parts of what was shared first, so that a large tensor has all of them when the others
 * are done.
 */

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

struct pool {
    const struct wfs_workload *workload; /* NULL: no two works have the same result */
    size_t n;                            /* works */
    size_t n_result;                     /* bytes of a result */
    /* Makes the result of work i, in any thread; 0 or a negative errno. It reads with pool->io, so
     * that threads without a work help. */
    int (*make)(struct pool *pool, size_t i, void *result);
    /* Gets each result in the order of the works, in the caller's thread. Not 0: the end. */
    int (*visit)(struct pool *pool, size_t i, const void *result);
    /* Gets, in its turn, what make returned that failed. Not 0: the end. */
    int (*fail)(struct pool *pool, size_t i, int code);
    struct wfs_io io;
    atomic_bool is_stopped; /* what is being made is not needed */
    /* Private. */
    struct pool_result *states; /* of each work; those of a group have theirs at its first one */
    char *results;
    size_t *firsts; /* of each group: 1 + its first work */
    struct team team;
};

/* Returns the first result of visit or fail that is not 0. -ENOMEM. */
int pool_run(struct pool *pool);

#endif
