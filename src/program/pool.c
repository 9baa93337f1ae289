/* SPDX-License-Identifier: MIT */
/*
 * The threads of a team take one work after the other, in their order; the caller's thread waits
 * for the results in that order.
 */
#include "program/threads.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

struct pool_result {
    int code; /* 0 or a negative errno */
    bool is_ready;
};

static size_t group_of(const struct pool *pool, size_t i)
{
    return pool->workload == NULL ? 0 : wfs_workload_group(pool->workload, i);
}

/* Those whose result another one has are left out, and after the end all. */
static void make_one(void *ctx, size_t i)
{
    struct pool *pool = ctx;
    const size_t group = group_of(pool, i);
    if (pool->is_stopped || (group != 0 && pool->firsts[group] != i + 1))
        return;
    const int code = pool->make(pool, i, pool->results + i * pool->n_result);
    pthread_mutex_lock(&pool->team.lock);
    pool->states[i] = (struct pool_result){code, true};
    pthread_cond_broadcast(&pool->team.changed);
    pthread_mutex_unlock(&pool->team.lock);
}

/* Waits for the result of each work in turn. */
static int visit_all(struct pool *pool)
{
    int code = 0;
    for (size_t i = 0; i < pool->n && code == 0; i++) {
        const size_t group = group_of(pool, i), at = group == 0 ? i : pool->firsts[group] - 1;
        pthread_mutex_lock(&pool->team.lock);
        while (!pool->states[at].is_ready)
            pthread_cond_wait(&pool->team.changed, &pool->team.lock);
        pthread_mutex_unlock(&pool->team.lock);
        code = pool->states[at].code;
        code = code < 0 ? pool->fail(pool, i, code)
                        : pool->visit(pool, i, pool->results + at * pool->n_result);
    }
    return code;
}

static bool is_stopped(void *ctx)
{
    return ((struct pool *)ctx)->is_stopped;
}

static int run_threads(struct pool *pool)
{
    struct team_share share = {.part = make_one, .ctx = pool, .n = pool->n};
    pool->io = (struct wfs_io){.is_stopped = is_stopped, .ctx = pool, .team = &pool->team.team};
    team_start(&pool->team);
    team_begin(&pool->team, &share);
    const int code = visit_all(pool);
    pool->is_stopped = true;
    team_finish(&pool->team, &share);
    team_end(&pool->team);
    return code;
}

int pool_run(struct pool *pool)
{
    autofree struct pool_result *states = calloc(pool->n + 1, sizeof(*states));
    autofree char *results = calloc(pool->n + 1, pool->n_result);
    const size_t n_groups = pool->workload == NULL ? 0 : wfs_workload_n_groups(pool->workload);
    autofree size_t *firsts = calloc(n_groups + 1, sizeof(*firsts));
    if (states == NULL || results == NULL || firsts == NULL)
        return -ENOMEM;
    pool->states = states;
    pool->results = results;
    pool->firsts = firsts;
    for (size_t i = pool->n; i-- > 0;)
        firsts[group_of(pool, i)] = i + 1;
    return run_threads(pool);
}
