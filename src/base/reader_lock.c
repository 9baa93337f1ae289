/* SPDX-License-Identifier: MIT */
#include "base/reader_lock.h"

#include <time.h>

void reader_lock_init(struct reader_lock *lock)
{
    *lock = (struct reader_lock){0};
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->released, NULL);
}

void reader_lock_done(struct reader_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
    pthread_cond_destroy(&lock->released);
}

int reader_wait(const struct wfs_io *io, pthread_cond_t *made, pthread_mutex_t *mutex,
                bool can_stop)
{
    enum { NS_TO_ASK = 50000000, NS = 1000000000 };
    struct timespec until;
    if (can_stop && !wfs_io_can_stop(io))
        return -EBUSY;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NS_TO_ASK;
    until.tv_sec += until.tv_nsec / NS;
    until.tv_nsec %= NS;
    pthread_cond_timedwait(made, mutex, &until);
    return wfs_io_check(io);
}

int reader_lock_take(struct reader_lock *lock, const struct wfs_io *io, bool gives_up)
{
    enum { MOST_WAITS = 4 };
    unsigned n_waits = 0;
    uint64_t n_taken = 0;
    int code = 0;
    pthread_mutex_lock(&lock->mutex);
    while (code == 0 && lock->is_held) {
        n_waits = lock->n_taken == n_taken ? n_waits + 1 : 0;
        n_taken = lock->n_taken;
        code = gives_up && n_waits > MOST_WAITS
                   ? -EBUSY
                   : reader_wait(io, &lock->released, &lock->mutex, lock->can_stop);
    }
    if (code == 0) {
        lock->is_held = true;
        lock->can_stop = wfs_io_can_stop(io);
        lock->n_taken++;
    }
    pthread_mutex_unlock(&lock->mutex);
    return code;
}

void reader_lock_release(struct reader_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    lock->is_held = false;
    pthread_cond_signal(&lock->released);
    pthread_mutex_unlock(&lock->mutex);
}
