/* SPDX-License-Identifier: MIT */
/*
 * Who has a turn: threads at the device, and requests that have to wait, without a thread that
 * waits. Changes wait for the end of a commit, which may take minutes. A few threads may do that;
 * if more requests for changes arrive, they are kept in memory until one of those threads is free,
 * so that threads for all other requests remain. The same holds for requests that read much before
 * they are answered, such as digests: as many as may work long have a turn, and the others are
 * answered when one of them has ended.
 */
#ifndef WFS_TURNS_H
#define WFS_TURNS_H

#include <fuse_lowlevel.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <sys/uio.h>

/*
 * Which threads wait at the device. The kernel wakes them in turn, and to wake one that has slept
 * takes longer than to answer a short request. While requests are short, one thread answers all of
 * them, and the others stay outside; one of those watches whether it is held up.
 */

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

/* Returns when the thread should wait at the device, true when only it does: short requests come.
 * It may be cancelled here. */
bool door_enter(struct door *door);

/* The thread has left the device. is_short: with a request that is answered from memory as a rule.
 */
void door_leave(struct door *door, bool is_short);

/* The numbers of threads that may wait, or work long for one change; work long for another request;
 * and wait for bytes of a source on the network. */
enum { PARKING_N_WAITING = 8, PARKING_N_LONG = 4, PARKING_N_FETCHING = 40 };

/* What takes long of a request that is not a change. */
enum parking_work { PARKING_LONG, PARKING_FETCHING, PARKING_N_WORKS };

/* The first one has waited longest. */
TAILQ_HEAD(parked_list, parked);
TAILQ_HEAD(kept_list, kept_request);

struct parking {
    struct door door;
    pthread_mutex_t lock; /* guards all below */
    unsigned n_waiting, n_working[PARKING_N_WORKS];
    size_t n_bytes;                         /* of the parked requests */
    struct parked_list parked;              /* changes */
    struct parked_list taken;               /* by threads, which have not answered them yet */
    struct kept_list kept[PARKING_N_WORKS]; /* other requests, which wait for a turn */
    atomic_uint n_taken;
};

void parking_init(struct parking *parking);

void parking_done(struct parking *parking);

/* Answers what is still parked with EINTR, when no thread takes requests any more. */
void parking_clear(struct parking *parking, int device);

/* Around what may take long, in a thread that answers a request for a change. */
void parking_begin_wait(struct parking *parking);
void parking_end_wait(struct parking *parking);

/* A request that is not a change, and what its callback was given. */
struct parking_request {
    fuse_req_t req;
    void (*answer)(struct parking_request *request); /* from the beginning, when it has its turn */
    fuse_ino_t ino;
    size_t n_bytes;
    uint64_t offset;
    const char *name;       /* or NULL */
    bool has_turn, is_gone; /* is_gone: it is kept for another thread, or answered */
    enum parking_work work; /* of its turn */
};

/* Answers the request, and then those that were waiting for its turn. */
void parking_run(struct parking *parking, struct parking_request *request);

/*
 * Called by `answer` before what takes long: gives the request a turn, which ends with the answer.
 * False: as many have one as may, and the request is gone; it is answered later, or with EINTR as
 * soon as its process is killed.
 */
bool parking_take_turn(struct parking *parking, struct parking_request *request,
                       enum parking_work work);

/*
 * Gives the next request to a thread: one that was parked, or from the device. Returns its size,
 * or -1 and errno. Parked requests whose process is killed are answered with EINTR. A thread that
 * is cancelled here leaves everything in order.
 */
ssize_t parking_receive(struct parking *parking, int device, void *request, size_t n_room);

/* Writes an answer, or another message to the kernel, as writev does. */
ssize_t parking_answer(struct parking *parking, int device, const struct iovec *parts, int n_parts);

#endif
