/* SPDX-License-Identifier: MIT */
/*
 * Which threads wait at the device. The kernel wakes them in turn, and to wake one that has slept
 * takes longer than to answer a short request. While requests are short, one thread answers all of
 * them, and the others stay outside; one of those watches whether it is held up.
 */
#ifndef WFS_DOOR_H
#define WFS_DOOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct door {
    pthread_mutex_t lock;
    pthread_cond_t opened;  /* all may go in */
    pthread_cond_t noticed; /* by the one that watches, when it sleeps */
    size_t n_inside;
    unsigned n_short; /* short requests since the last other one */
    uint64_t n_received;
    bool is_watched, is_watch_asleep;
};

void door_init(struct door *door);
void door_done(struct door *door);

/* Returns when the thread should wait at the device. It may be cancelled here. */
void door_enter(struct door *door);

/* The thread has left the device. is_short: with a request that is answered from memory as a rule.
 */
void door_leave(struct door *door, bool is_short);

#endif
