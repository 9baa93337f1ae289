/* SPDX-License-Identifier: MIT */
/*
 * Makes a result for each work of a workload in several threads, those of a group once together,
 * and hands the results on in order.
 */
#ifndef WFS_POOL_H
#define WFS_POOL_H

#include "program/team.h"

#include <weightfs/workload.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct pool {
    const struct wfs_workload *workload; /* NULL: no two works have the same result */
    size_t n;                            /* works */
    size_t n_result;                     /* bytes of a result */
    /* Makes the result of work i, in any thread; 0 or a negative errno. It reads with pool->io, so
     * that threads without a work help. */
    int (*make)(struct pool *pool, size_t i, void *result);
    /* Gets each result in the order of the works, in the caller's thread. Not 0: the end. */
    int (*visit)(struct pool *pool, size_t i, const void *result);
    struct wfs_io io;
    atomic_bool is_stopped; /* what is being made is not needed */
    /* Private. */
    struct pool_result *states; /* of each work; those of a group have theirs at its first one */
    char *results;
    size_t *firsts;  /* of each group: 1 + its first work */
    size_t n_needed; /* works from this one on are not made: one before it failed */
    struct team team;
};

/*
 * Returns the first result of make or visit that is not 0. *ret_failed is the work whose make
 * failed, or SIZE_MAX. -ENOMEM.
 */
int pool_run(struct pool *pool, size_t *ret_failed);

#endif
