/* SPDX-License-Identifier: MIT */
/*
 * The one that watches looks every millisecond while requests come, and sleeps while none does.
 */
#include "fuse/turns.h"

#include <time.h>

enum { N_SHORT = 32, LOOK_NS = 1000000, SECOND_NS = 1000000000 };

void door_init(struct door *door)
{
    pthread_condattr_t attributes;
    *door = (struct door){0};
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&door->lock, NULL);
    pthread_cond_init(&door->opened, NULL);
    pthread_cond_init(&door->noticed, &attributes);
    pthread_condattr_destroy(&attributes);
}

void door_done(struct door *door)
{
    pthread_cond_destroy(&door->opened);
    pthread_cond_destroy(&door->noticed);
    pthread_mutex_destroy(&door->lock);
}

static bool is_open(const struct door *door)
{
    return door->n_short < N_SHORT;
}

/* Waits until the next look, or until something comes. */
static void wait_to_look(struct door *door, bool is_quiet)
{
    struct timespec until;
    if (is_quiet) {
        door->is_watch_asleep = true;
        pthread_cond_wait(&door->noticed, &door->lock);
        door->is_watch_asleep = false;
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    pthread_cond_timedwait(&door->noticed, &door->lock, &until);
}

/* Returns when the door is open, or the thread that answers is held up: nobody is inside, and
 * nothing was received from one look to the next. */
static void watch(struct door *door)
{
    bool is_quiet = false;
    door->is_watched = true;
    while (!is_open(door)) {
        const uint64_t n_before = door->n_received;
        wait_to_look(door, is_quiet);
        is_quiet = door->n_received == n_before;
        if (is_quiet && door->n_inside == 0)
            break;
    }
    door->is_watched = false;
}

static void unlock(void *lock)
{
    pthread_mutex_unlock(lock);
}

bool door_enter(struct door *door)
{
    bool is_alone;
    pthread_mutex_lock(&door->lock);
    pthread_cleanup_push(unlock, &door->lock);
    while (!is_open(door) && door->n_inside > 0) {
        if (door->is_watched)
            pthread_cond_wait(&door->opened, &door->lock);
        else
            watch(door);
    }
    door->n_inside++;
    is_alone = !is_open(door);
    if (!door->is_watched)
        pthread_cond_signal(&door->opened); /* for the next one to watch, if one waits */
    pthread_cleanup_pop(1);
    return is_alone;
}

void door_leave(struct door *door, bool is_short)
{
    pthread_mutex_lock(&door->lock);
    door->n_inside--;
    door->n_received++;
    if (is_short && is_open(door))
        door->n_short++;
    if (!is_short) {
        door->n_short = 0;
        pthread_cond_broadcast(&door->opened);
    }
    if (!is_short || door->is_watch_asleep)
        pthread_cond_signal(&door->noticed);
    pthread_mutex_unlock(&door->lock);
}
