/* SPDX-License-Identifier: MIT */
/*
 * Questions to the process that fetches, and their answers. Any number of threads may wait at the
 * same time.
 */
#ifndef WFS_REMOTE_CALL_H
#define WFS_REMOTE_CALL_H

#include <weightfs/error.h>
#include <weightfs/fetching.h>
#include <weightfs/remote.h>

#include <stdbool.h>
#include <stdint.h>

struct remote_answer {
    uint64_t base; /* in the cache file */
    uint64_t n_bytes, digest;
    int32_t code;
    char *text; /* malloc'ed, of OPENED */
    int fd;     /* of OPENED; the caller's */
};

/* Takes another reference, for a source. */
struct wfs_remote *remote_share(struct wfs_remote *remote);

/*
 * Asks for an object and waits: *ret_number is what it is called in later questions. Errors as
 * remote_ask.
 */
int remote_open(struct wfs_remote *remote, const char *url, uint32_t *ret_number,
                struct remote_answer *ret, struct wfs_error *err);

/* Returns how many processes that fetch were killed. Where one is while somebody waits, and another
 * has taken its place, that fails with -ENOTCONN: it is to be asked again, and knows no object. */
uint32_t remote_generation(struct wfs_remote *remote);

/* Asks for an object again under its number. */
int remote_reopen(const struct wfs_io *io, struct wfs_remote *remote, uint32_t number,
                  const char *url, struct remote_answer *ret, struct wfs_error *err);

/* Asks for an object that remote_open is called for soon, without waiting, and for its first
 * n_bytes rather than as many as usual. */
void remote_open_early(struct wfs_remote *remote, const char *url, uint64_t n_bytes);

/* A range of an object, and how many bytes behind it the same reader goes on with. */
struct remote_range {
    uint32_t object;
    uint64_t offset, n_bytes, n_more;
};

/*
 * Asks for a range and waits. -EINTR when the reader is to stop, -EIO when the other
 * process is gone, or the code of the failure that it reports; err gets a sentence.
 */
int remote_want(const struct wfs_io *io, struct wfs_remote *remote,
                const struct remote_range *range, struct wfs_error *err);

/* Returns what the gate says to a reader. */
int remote_pass(const struct wfs_io *io, const struct wfs_remote *remote,
                const struct source *source, uint64_t offset, uint64_t end);

/* Sends what has no answer; it is lost when the socket is full. */
void remote_tell(struct wfs_remote *remote, const struct fetching *message);

/*
 * Readers that go forward: how far ahead of each is asked for. A few readers of an object are
 * distinguished by where they are.
 */

enum { FORWARD_READERS = 16 };

struct forward_reader {
    uint64_t next;   /* behind what it has read; 0: none */
    uint64_t asked;  /* up to where it was asked ahead */
    uint64_t window; /* bytes */
    uint64_t end;    /* of what it reads, as far as that is known */
    uint64_t n_read; /* bytes */
    bool has_passed; /* it went on behind the end of what it read before */
    uint64_t used;   /* when */
};

/* A zeroed one has seen no reader. */
struct forward {
    struct forward_reader readers[FORWARD_READERS];
    uint64_t n_uses;
};

/*
 * Notes a read; end is up to where it may go on, 0: that is not known, and little is asked ahead.
 * Returns true when [*ret_from, *ret_end), which lies behind the read and not behind end, is to be
 * asked for.
 */
bool forward_note(struct forward *forward, uint64_t offset, uint64_t n_bytes, uint64_t end,
                  uint64_t *ret_from, uint64_t *ret_end);

#endif
