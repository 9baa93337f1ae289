/* SPDX-License-Identifier: MIT */
/*
 * Who reads: what functions that may take long are given, where there is something to say. They ask
 * now and then whether the result is still needed, and return -EINTR when it is not.
 */
#ifndef WFS_INTERRUPTION_H
#define WFS_INTERRUPTION_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Threads that share work. */
struct wfs_team {
    /* Calls part for each i below n, some at a time, also in the caller's thread, and returns when
     * all have returned. Parts may share work themselves. */
    void (*share)(struct wfs_team *team, size_t n, void (*part)(void *ctx, size_t i), void *ctx);
};

/* All of it may be 0, as that of a pointer that is NULL. */
struct wfs_io {
    /* Returns true when nobody needs the result any more. Called often. NULL: somebody does. */
    bool (*is_stopped)(void *ctx);
    void *ctx;
    /* The range of a source that is read soon, forwards and nearly all of it: one on the network is
     * fetched that far ahead. Reads of other ranges are as good. */
    uint64_t source; /* its id; 0: nothing is known */
    uint64_t offset, end;
    struct wfs_team *team; /* helps with what takes long; NULL: nobody does */
};

static inline bool wfs_io_can_stop(const struct wfs_io *io)
{
    return io != NULL && io->is_stopped != NULL;
}

/* Returns -EINTR when the reader is to stop, or 0. */
static inline int wfs_io_check(const struct wfs_io *io)
{
    return wfs_io_can_stop(io) && io->is_stopped(io->ctx) ? -EINTR : 0;
}

/* Calls part for each i below n, in several threads where there is a team. */
static inline void wfs_io_share(const struct wfs_io *io, size_t n,
                                void (*part)(void *ctx, size_t i), void *ctx)
{
    if (io != NULL && io->team != NULL && n > 1)
        io->team->share(io->team, n, part, ctx);
    else
        for (size_t i = 0; i < n; i++)
            part(ctx, i);
}

#pragma GCC visibility push(default)

/* Room for what threads make, kept from one call to the next. Zeros: there is none yet. */
struct wfs_rooms {
    size_t n_bytes; /* of each */
    void *all[8];
};

/*
 * Calls part for each i below n as wfs_io_share does, with a room of n_bytes that no other thread
 * has. All take up to 64 MiB, or are two. Returns -ENOMEM when not all parts were called.
 */
int wfs_rooms_share(struct wfs_rooms *rooms, const struct wfs_io *io, size_t n, size_t n_bytes,
                    void (*part)(void *ctx, size_t i, void *room), void *ctx);
void wfs_rooms_done(struct wfs_rooms *rooms);

/* Returns the bytes that all threads have read from files of checkpoints so far. */
uint64_t wfs_n_read(void);

#pragma GCC visibility pop

#endif
