/* SPDX-License-Identifier: MIT */
/*
 * Threads at the door of the device, each of which is held up by the request that it takes.
 */
#include "fuse/turns.h"

#include "check.h"

#include <unistd.h>

enum {
    N_THREADS = 8,
    N_ROUNDS = 200,
    N_CLOSING = 64,            /* short requests: more than close the door */
    MOST_US = 20 * 1000 * 1000 /* until the last one is in: about 10 ms */
};

struct round {
    struct door door;
    pthread_mutex_t held; /* locked: as long as requests take */
    atomic_uint n_answering;
};

static void *take_one(void *ctx)
{
    struct round *round = ctx;
    door_enter(&round->door);
    door_leave(&round->door, true);
    atomic_fetch_add(&round->n_answering, 1);
    pthread_mutex_lock(&round->held);
    pthread_mutex_unlock(&round->held);
    return NULL;
}

/* Returns how many are at work at the end: less than all where one waits for good. */
static unsigned run_round(void)
{
    enum { STEP_US = 100 };
    pthread_t threads[N_THREADS];
    struct round round = {.held = PTHREAD_MUTEX_INITIALIZER};
    unsigned n_answering, waited_us = 0;
    door_init(&round.door);
    for (unsigned i = 0; i < N_CLOSING; i++) {
        door_enter(&round.door);
        door_leave(&round.door, true);
    }
    door_enter(&round.door);
    pthread_mutex_lock(&round.held);
    for (unsigned i = 0; i < N_THREADS; i++)
        check_int(pthread_create(&threads[i], NULL, take_one, &round), 0);
    usleep(2000); /* they wait, since one is inside */
    check_uint(atomic_load(&round.n_answering), 0);
    door_leave(&round.door, true);
    while ((n_answering = atomic_load(&round.n_answering)) < N_THREADS && waited_us < MOST_US) {
        usleep(STEP_US);
        waited_us += STEP_US;
    }
    door_enter(&round.door);
    door_leave(&round.door, false); /* opens it for all */
    pthread_mutex_unlock(&round.held);
    for (unsigned i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    door_done(&round.door);
    return n_answering;
}

static void another_goes_in_whenever_one_is_held_up(void)
{
    unsigned n_answering = N_THREADS;
    for (unsigned i = 0; i < N_ROUNDS && n_answering == N_THREADS; i++)
        n_answering = run_round();
    check_uint(n_answering, N_THREADS);
}

int main(void)
{
    check_run(another_goes_in_whenever_one_is_held_up);
    return check_done();
}
