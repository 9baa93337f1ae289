/* SPDX-License-Identifier: MIT */
/*
 * Threads take one tensor after the other, in the order of the file; the caller's thread waits for
 * the results in that order.
 */
#include "cli/sums.h"

#include <weightfs/cleanup.h>

#include <nettle/sha2.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS_MAX = 8 };

enum { N_SHA256 = SUMS_N_SHA256 / 2 };

struct result {
    unsigned char sha256[N_SHA256];
    uint64_t xxh3;
    int code; /* 0 or a negative errno */
    bool is_ready;
};

struct job {
    const struct wfs_catalog *catalog;
    const struct wfs_workload *workload;
    struct progress *progress;
    struct result *results; /* of each tensor; those of a group have theirs at its first one */
    size_t *firsts;         /* of each group: 1 + its first tensor */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_taken;
    bool is_stopped;
};

/* ---- one tensor ---- */

struct reading {
    struct job *job;
    struct sha256_ctx sha256;
};

static int add_piece(void *ctx, const void *bytes, size_t n_bytes)
{
    struct reading *reading = ctx;
    sha256_update(&reading->sha256, n_bytes, bytes);
    progress_add(reading->job->progress, n_bytes);
    pthread_mutex_lock(&reading->job->lock);
    const bool is_stopped = reading->job->is_stopped;
    pthread_mutex_unlock(&reading->job->lock);
    return is_stopped ? -ECANCELED : 0;
}

static int make_sums(struct reading *reading, const struct wfs_tensor *tensor, struct result *ret)
{
    sha256_init(&reading->sha256);
    const int code = wfs_tensor_digest_and(tensor, add_piece, reading, &ret->xxh3);
    if (code == 0)
        sha256_digest(&reading->sha256, N_SHA256, ret->sha256);
    return code;
}

static struct sums format(const struct result *result)
{
    struct sums sums;
    for (size_t i = 0; i < N_SHA256; i++)
        snprintf(sums.sha256 + 2 * i, 3, "%02x", result->sha256[i]);
    snprintf(sums.xxh3, sizeof(sums.xxh3), "%016" PRIx64, result->xxh3);
    return sums;
}

/* ---- all of them ---- */

/* Returns false when all are taken. Those whose result another one has are left out. */
static bool take_next(struct job *job, size_t *ret_i)
{
    const size_t n = wfs_catalog_n_tensors(job->catalog);
    bool has_one = false;
    pthread_mutex_lock(&job->lock);
    while (!has_one && job->n_taken < n && !job->is_stopped) {
        *ret_i = job->n_taken++;
        const size_t group = wfs_workload_group(job->workload, *ret_i);
        has_one = group == 0 || job->firsts[group] == *ret_i + 1;
    }
    pthread_mutex_unlock(&job->lock);
    return has_one;
}

/* After a failure none is taken any more; all before it have been, and are made. */
static void *make_some(void *ctx)
{
    struct job *job = ctx;
    struct reading reading = {.job = job};
    for (size_t i; take_next(job, &i);) {
        struct result *result = &job->results[i];
        const int code = make_sums(&reading, wfs_catalog_tensor(job->catalog, i), result);
        pthread_mutex_lock(&job->lock);
        result->code = code;
        result->is_ready = true;
        if (code < 0)
            job->n_taken = wfs_catalog_n_tensors(job->catalog);
        pthread_cond_signal(&job->changed);
        pthread_mutex_unlock(&job->lock);
    }
    return NULL;
}

static int wait_for(struct job *job, const struct result *result)
{
    pthread_mutex_lock(&job->lock);
    while (!result->is_ready)
        pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
    return result->code;
}

static int visit_all(struct job *job, sums_visit visit, void *ctx,
                     const struct wfs_tensor **ret_failed)
{
    int code = 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(job->catalog) && code == 0; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(job->catalog, i);
        const size_t group = wfs_workload_group(job->workload, i);
        const struct result *result = &job->results[group == 0 ? i : job->firsts[group] - 1];
        code = wait_for(job, result);
        const struct sums sums = format(result);
        if (code < 0)
            *ret_failed = tensor;
        else
            code = visit(ctx, tensor, &sums);
    }
    return code;
}

static size_t count_threads(size_t n_tensors)
{
    cpu_set_t cpus;
    const int n_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    const size_t n = n_cpus < N_THREADS_MAX ? (size_t)n_cpus : N_THREADS_MAX;
    return n < n_tensors ? n : n_tensors;
}

static int run(struct job *job, sums_visit visit, void *ctx, const struct wfs_tensor **ret_failed)
{
    pthread_t threads[N_THREADS_MAX];
    const size_t n_threads = count_threads(wfs_catalog_n_tensors(job->catalog));
    size_t n_started = 0;
    while (n_started < n_threads && pthread_create(&threads[n_started], NULL, make_some, job) == 0)
        n_started++;
    if (n_started == 0)
        make_some(job);
    const int code = visit_all(job, visit, ctx, ret_failed);
    pthread_mutex_lock(&job->lock);
    job->is_stopped = true;
    pthread_mutex_unlock(&job->lock);
    while (n_started > 0)
        pthread_join(threads[--n_started], NULL);
    return code;
}

static void find_firsts(struct job *job)
{
    for (size_t i = wfs_catalog_n_tensors(job->catalog); i-- > 0;)
        job->firsts[wfs_workload_group(job->workload, i)] = i + 1;
}

int sums_make(const struct wfs_catalog *catalog, const struct wfs_workload *workload,
              struct progress *progress, sums_visit visit, void *ctx,
              const struct wfs_tensor **ret_failed)
{
    autofree struct result *results = calloc(wfs_catalog_n_tensors(catalog) + 1, sizeof(*results));
    autofree size_t *firsts = calloc(wfs_workload_n_groups(workload) + 1, sizeof(*firsts));
    struct job job = {.catalog = catalog,
                      .workload = workload,
                      .progress = progress,
                      .results = results,
                      .firsts = firsts,
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER};
    *ret_failed = NULL;
    if (results == NULL || firsts == NULL)
        return -ENOMEM;
    find_firsts(&job);
    return run(&job, visit, ctx, ret_failed);
}
