/* SPDX-License-Identifier: MIT */
/*
 * Threads take one work after the other, in their order; the caller's thread waits for the results
 * in that order.
 */
#include "cli/pool.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

enum { N_THREADS_MAX = 8 };

struct pool_result {
    int code; /* 0 or a negative errno */
    bool is_ready;
};

/* Returns false when all are taken. Those whose result another one has are left out. */
static bool take_next(struct pool *pool, size_t *ret_i)
{
    bool has_one = false;
    pthread_mutex_lock(&pool->lock);
    while (!has_one && pool->n_taken < pool->n && !pool->is_stopped) {
        *ret_i = pool->n_taken++;
        const size_t group = wfs_workload_group(pool->workload, *ret_i);
        has_one = group == 0 || pool->firsts[group] == *ret_i + 1;
    }
    pthread_mutex_unlock(&pool->lock);
    return has_one;
}

/* After a failure none is taken any more; all before it have been, and are made. */
static void *make_some(void *ctx)
{
    struct pool *pool = ctx;
    for (size_t i; take_next(pool, &i);) {
        const int code = pool->make(pool, i, pool->results + i * pool->n_result);
        pthread_mutex_lock(&pool->lock);
        pool->states[i] = (struct pool_result){code, true};
        if (code < 0)
            pool->n_taken = pool->n;
        pthread_cond_signal(&pool->changed);
        pthread_mutex_unlock(&pool->lock);
    }
    return NULL;
}

/* Waits for the result of each work in turn. */
static int visit_all(struct pool *pool, size_t *ret_failed)
{
    int code = 0;
    for (size_t i = 0; i < pool->n && code == 0; i++) {
        const size_t group = wfs_workload_group(pool->workload, i);
        const size_t at = group == 0 ? i : pool->firsts[group] - 1;
        pthread_mutex_lock(&pool->lock);
        while (!pool->states[at].is_ready)
            pthread_cond_wait(&pool->changed, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
        code = pool->states[at].code;
        if (code < 0)
            *ret_failed = i;
        else
            code = pool->visit(pool, i, pool->results + at * pool->n_result);
    }
    return code;
}

static size_t count_threads(size_t n_works)
{
    cpu_set_t cpus;
    const int n_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    const size_t n = n_cpus < N_THREADS_MAX ? (size_t)n_cpus : N_THREADS_MAX;
    return n < n_works ? n : n_works;
}

static int run_threads(struct pool *pool, size_t *ret_failed)
{
    pthread_t threads[N_THREADS_MAX];
    const size_t n_threads = count_threads(pool->n);
    size_t n_started = 0;
    while (n_started < n_threads && pthread_create(&threads[n_started], NULL, make_some, pool) == 0)
        n_started++;
    if (n_started == 0)
        make_some(pool);
    const int code = visit_all(pool, ret_failed);
    pool->is_stopped = true;
    while (n_started > 0)
        pthread_join(threads[--n_started], NULL);
    return code;
}

int pool_run(struct pool *pool, size_t *ret_failed)
{
    autofree struct pool_result *states = calloc(pool->n + 1, sizeof(*states));
    autofree char *results = calloc(pool->n + 1, pool->n_result);
    autofree size_t *firsts = calloc(wfs_workload_n_groups(pool->workload) + 1, sizeof(*firsts));
    *ret_failed = SIZE_MAX;
    if (states == NULL || results == NULL || firsts == NULL)
        return -ENOMEM;
    pool->states = states;
    pool->results = results;
    pool->firsts = firsts;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    for (size_t i = pool->n; i-- > 0;)
        firsts[wfs_workload_group(pool->workload, i)] = i + 1;
    return run_threads(pool, ret_failed);
}
