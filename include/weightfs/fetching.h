/* SPDX-License-Identifier: MIT */
/*
 * What a process that reads checkpoints and the process that fetches them say to each other: single
 * messages over a socket that keeps their bounds. Shared by library and programs, not installed.
 *
 *     offset  0  1  kind
 *             1  3  0
 *             4  4  request     the number that the answer has too
 *             8  4  object      a number that the reader chose
 *            12  4  code        a positive errno
 *            16  8  offset
 *            24  8  n_bytes     of the range, or of the object
 *            32  8  n_fetched   so far, by this process, of all objects
 *            40  8  n_needed    n_fetched and what readers wait for; of a question, how many bytes
 *                               behind the range the same reader goes on with
 *            48  8  digest      of the validator
 *            56     text, up to the end of the message
 */
#ifndef WFS_FETCHING_H
#define WFS_FETCHING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum fetching_kind {
    /* questions */
    FETCHING_OPEN = 'o',   /* text: the URL; n_bytes that are fetched first, 0: as many as usual,
                              FETCHING_QUESTION: none, and no descriptor comes with the answer */
    FETCHING_WANT = 'w',   /* a range that somebody waits for */
    FETCHING_AHEAD = 'a',  /* one that will be read soon; no answer */
    FETCHING_HEADER = 'h', /* one of a header that is read now; no answer */
    FETCHING_BESIDE = 'b', /* n_bytes objects beside it are opened soon, 0: it is not known how
                              many; no answer */
    FETCHING_CANCEL = 'c', /* nobody waits for the answer; no answer */
    FETCHING_CLOSE = 'x',  /* the object is not read any more; no answer */
    /* answers */
    FETCHING_OPENED = 'O', /* n_bytes of the object, text: its URL; with the cache file, in which it
                              is at offset */
    FETCHING_DONE = 'D',   /* the range is in the cache file */
    FETCHING_FAILED = 'F', /* code; text: why */
    FETCHING_STARTED = 'S', /* to no question: another process has taken the place of one that was
                               killed, and knows no object */
};

enum {
    FETCHING_HEAD = 56,
    FETCHING_TEXT_MAX = 16384,
    FETCHING_MAX = FETCHING_HEAD + FETCHING_TEXT_MAX
};

#define FETCHING_QUESTION INT64_MAX

/* Set in code of OPENED. */
enum {
    FETCHING_IS_WEAK = 1,    /* the server gave no strong validator: a change may not show */
    FETCHING_IS_UNKEPT = 2,  /* it was to be kept in a cache, and there is no room for it */
    FETCHING_IS_PRIVATE = 4, /* the user's credentials were sent for it */
};

struct fetching {
    enum fetching_kind kind;
    uint32_t request, object;
    int32_t code;
    uint64_t offset, n_bytes;
    uint64_t n_fetched, n_needed, digest;
    const char *text; /* not NUL-terminated, in the message; no NUL is in it */
    size_t n_text;
};

/* Writes the message, and returns its length. -EMSGSIZE: the text is too long. */
int fetching_encode(const struct fetching *message, uint8_t ret[FETCHING_MAX]); /* for tests */

/* Reads one; text borrows from bytes. -EBADMSG. */
int fetching_decode(const uint8_t *bytes, size_t n_bytes, struct fetching *ret); /* for tests */

/*
 * Send and receive a packet, as send and recvmsg do but go on after a signal. A descriptor goes
 * with it unless fd is -1; *ret_fd is the one that came with it, or -1, and with ret_fd NULL the
 * kernel drops any. EMSGSIZE: it was longer than n_room. For all sockets that keep the bounds of
 * messages.
 */
ssize_t packet_send(int socket, const void *bytes, size_t n_bytes, int fd, int flags);
ssize_t packet_receive(int socket, void *buf, size_t n_room, int *ret_fd, int flags);

/*
 * Sends a message, with a descriptor unless fd is -1, without waiting: -EAGAIN when the socket is
 * full, -EPIPE when the other side is gone.
 */
int fetching_send(int socket, const struct fetching *message, int fd);

/*
 * Receives a message into buf, without waiting: -EAGAIN when there is none, -EPIPE when the other
 * side is gone, -EBADMSG. *ret_fd is the descriptor that came with it, or -1; the caller closes it.
 */
int fetching_receive(int socket, uint8_t buf[FETCHING_MAX], struct fetching *ret, int *ret_fd);

#endif
