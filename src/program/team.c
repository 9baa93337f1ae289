/* SPDX-License-Identifier: MIT */
/*
 * A list of what is shared, the oldest first. Who waits for the end of its own works on that.
 */
#include "program/threads.h"

#include <sched.h>

/* Takes a part under the lock, and works on it without. */
static void do_part(struct team *team, struct team_share *share)
{
    const size_t i = share->n_taken++;
    if (share->n_taken == share->n) {
        struct team_share **at = &team->first;
        while (*at != share)
            at = &(*at)->next;
        *at = share->next;
    }
    pthread_mutex_unlock(&team->lock);
    share->part(share->ctx, i);
    pthread_mutex_lock(&team->lock);
    if (++share->n_done == share->n)
        pthread_cond_broadcast(&team->changed);
}

static void *work(void *ctx)
{
    struct team *team = ctx;
    pthread_mutex_lock(&team->lock);
    while (!team->is_over) {
        if (team->first != NULL)
            do_part(team, team->first);
        else
            pthread_cond_wait(&team->changed, &team->lock);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

/* Under the lock. */
static void start_threads(struct team *team)
{
    cpu_set_t cpus;
    const int n_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    team->is_started = true;
    while (team->n_threads < TEAM_MOST && team->n_threads < (size_t)n_cpus &&
           pthread_create(&team->threads[team->n_threads], NULL, work, team) == 0)
        team->n_threads++;
}

void team_begin(struct team *team, struct team_share *share)
{
    struct team_share **at = &team->first;
    pthread_mutex_lock(&team->lock);
    if (!team->is_started)
        start_threads(team);
    while (*at != NULL)
        at = &(*at)->next;
    if (share->n > 0)
        *at = share;
    pthread_cond_broadcast(&team->changed);
    while (team->n_threads == 0 && share->n_taken < share->n)
        do_part(team, share);
    pthread_mutex_unlock(&team->lock);
}

void team_finish(struct team *team, struct team_share *share)
{
    pthread_mutex_lock(&team->lock);
    while (share->n_done < share->n)
        pthread_cond_wait(&team->changed, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

static void share(struct wfs_team *of, size_t n, void (*part)(void *ctx, size_t i), void *ctx)
{
    struct team *team = (struct team *)of;
    struct team_share share = {.part = part, .ctx = ctx, .n = n};
    team_begin(team, &share);
    pthread_mutex_lock(&team->lock);
    while (share.n_taken < share.n)
        do_part(team, &share);
    pthread_mutex_unlock(&team->lock);
    team_finish(team, &share);
}

void team_start(struct team *team)
{
    *team = (struct team){.team.share = share};
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->changed, NULL);
}

void team_end(struct team *team)
{
    pthread_mutex_lock(&team->lock);
    team->is_over = true;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->lock);
    while (team->n_threads > 0)
        pthread_join(team->threads[--team->n_threads], NULL);
}
