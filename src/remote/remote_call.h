/* SPDX-License-Identifier: MIT */
/*
 * A question to the process that fetches, and its answer. Any number of threads may wait at the
 * same time.
 */
#ifndef WFS_REMOTE_CALL_H
#define WFS_REMOTE_CALL_H

#include <weightfs/error.h>
#include <weightfs/fetching.h>
#include <weightfs/remote.h>

struct remote_answer {
    uint64_t n_bytes;
    int32_t code;
    char *text; /* malloc'ed, of OPENED */
    int fd;     /* of OPENED; the caller's */
};

/* Takes another reference, for a source. */
struct wfs_remote *remote_share(struct wfs_remote *remote);

/* Returns a number for an object that no other has. */
uint32_t remote_number(struct wfs_remote *remote);

/*
 * Asks and waits. -EINTR when the calling thread is interrupted, -EIO when the other process is
 * gone, -ENOMEM, or the code of the failure that it reports; err gets a sentence. The answer is
 * written on success only; NULL: it is not of interest.
 */
int remote_ask(struct wfs_remote *remote, const struct fetching *question,
               struct remote_answer *ret, struct wfs_error *err);

/* Sends what has no answer; it is lost when the socket is full. */
void remote_tell(struct wfs_remote *remote, const struct fetching *message);

#endif
