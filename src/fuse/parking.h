/* SPDX-License-Identifier: MIT */
/*
 * Requests that have to wait, without a thread that waits. Changes wait for the end of a commit,
 * which may take minutes. A few threads may do that; if more requests for changes arrive, they are
 * kept in memory until one of those threads is free, so that threads for all other requests remain.
 * The same holds for requests that read much before they are answered, such as digests.
 */
#ifndef WFS_PARKING_H
#define WFS_PARKING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The numbers of threads that may wait, or work long for one change; work long for another request;
 * and wait for bytes of a source on the network. */
enum { PARKING_N_WAITING = 8, PARKING_N_LONG = 4, PARKING_N_FETCHING = 40 };

/* What takes long of a request that is not a change. */
enum parking_work { PARKING_LONG, PARKING_FETCHING, PARKING_N_WORKS };

struct parked;

struct parked_list {
    struct parked *first, **end;
};

struct parking {
    pthread_mutex_t lock;
    unsigned n_waiting, n_working[PARKING_N_WORKS];
    size_t n_bytes;                            /* of the parked requests */
    struct parked_list parked;                 /* changes; the first one has waited longest */
    struct parked_list later[PARKING_N_WORKS]; /* other requests that take long */
    struct parked_list taken;                  /* by threads, which have not answered them yet */
    atomic_uint n_taken;
};

void parking_init(struct parking *parking);

void parking_done(struct parking *parking);

/* Answers what is still parked with EINTR, when no thread takes requests any more. */
void parking_clear(struct parking *parking, int device);

/* Around what may take long, in a thread that answers a request for a change. */
void parking_begin_wait(struct parking *parking);
void parking_end_wait(struct parking *parking);

/*
 * Around what may take long, in the thread that answers a request that is not a change. False: as
 * many threads as may do so already. The request is kept, and a thread will get it again; the
 * caller drops it without an answer. is_given_up is asked whether it was interrupted meanwhile.
 */
bool parking_begin_work(struct parking *parking, enum parking_work work,
                        bool (*is_given_up)(void *ctx), void *ctx);
void parking_end_work(struct parking *parking, enum parking_work work);

/*
 * Gives the next request to a thread: one that was parked, or from the device. Returns its size,
 * or -1 and errno. Parked requests whose process is killed are answered with EINTR. A thread that
 * is cancelled here leaves everything in order.
 */
ssize_t parking_receive(struct parking *parking, int device, void *request, size_t n_room);

/* Writes an answer, or another message to the kernel, as writev does. */
ssize_t parking_answer(struct parking *parking, int device, const struct iovec *parts, int n_parts);

#endif
