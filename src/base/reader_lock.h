/* SPDX-License-Identifier: MIT */
/*
 * Readers that need what one of them makes. One that can be stopped may wait for the network; one
 * that cannot may hold a lock that everybody needs, so it never waits for the former, and makes
 * for itself what it needs.
 */
#ifndef WFS_READER_LOCK_H
#define WFS_READER_LOCK_H

#include <weightfs/interruption.h>

#include <pthread.h>

struct reader_lock {
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t released;
    bool is_held, can_stop; /* can_stop: who holds it */
    uint64_t n_taken;
};

void reader_lock_init(struct reader_lock *lock);
void reader_lock_done(struct reader_lock *lock);

/*
 * Returns 0; -EINTR when the reader is to stop; -EBUSY when it should not wait, or, where it gives
 * up, when one has held it for a fifth of a second: what that one reads may never come.
 */
int reader_lock_take(struct reader_lock *lock, const struct wfs_io *io, bool gives_up);
void reader_lock_release(struct reader_lock *lock);

/*
 * Waits a little until `made` is broadcast; the mutex is held, but not meanwhile. can_stop: the one
 * that makes it can be stopped. Returns as reader_lock_take.
 */
int reader_wait(const struct wfs_io *io, pthread_cond_t *made, pthread_mutex_t *mutex,
                bool can_stop);

#endif
