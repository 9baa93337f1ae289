/* SPDX-License-Identifier: MIT */
/*
 * Ranges of objects by HTTP: one loop of one thread that runs many transfers at a time. Retries,
 * redirects, validators and credentials are dealt with in here; the caller gets bytes, or one line
 * that says why there are none. libcurl is used in this room only.
 *
 * No text that leaves this room has a query, a user or a password of a URL, or a credential, in it.
 */
#ifndef WFS_HTTP_H
#define WFS_HTTP_H

#include <weightfs/error.h>

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http;
struct http_object;
struct http_transfer;

struct http_settings {
    unsigned retries;     /* of a request that failed, each after a pause three times as long */
    unsigned timeout_s;   /* without a byte; 0: no limit */
    const char *endpoint; /* of s3://; NULL: what the environment says. Copied */
    unsigned pause_ms;    /* before the first retry; 0: 300 */
    unsigned n_requests;  /* at a time; 0: 16, which is also what a server gets that refuses some */
};

/* What later answers are compared with, so that bytes of two versions are never mixed. */
enum http_validator {
    HTTP_BY_ETAG,     /* strong */
    HTTP_BY_DATE,     /* Last-Modified, and the size */
    HTTP_BY_WEAK_TAG, /* a weak ETag, and the size */
    HTTP_BY_SIZE,     /* the server offers nothing better */
};

enum { HTTP_QUESTION_S = 10 };

enum { HTTP_TAG_MAX = 256 }; /* of an entity tag; 64 have been seen */

/* What is known of an object. A zeroed struct: nothing. */
struct http_known {
    bool is_open;
    bool is_whole; /* the server has no ranges: the first request delivers all bytes, and http_get
                      transfers all of them again */
    uint64_t n_bytes;
    enum http_validator kind;
    bool is_weak;                 /* two versions may have the same one */
    bool is_fleeting;             /* the server forbids to store it */
    bool is_private;              /* it was asked for with a token, a password or a query */
    char validator[HTTP_TAG_MAX]; /* the header's text; "" by size only */
};

/*
 * What a transfer reports, from inside of http_wait. In them, http_get, http_cancel,
 * http_object_open and http_object_free may be called.
 */
struct http_calls {
    /* Called once, before any byte, for the transfer that opens an object. The name is that of the
     * object, as http_object_open takes it: with the path that was found, for "hf://OWNER/NAME".
     * Both are borrowed until the object is freed. NULL for http_get. */
    void (*opened)(void *ctx, const char *name, const struct http_known *known);
    /* The next bytes, in order and without gaps. They may be kept even when the transfer fails
     * later: all that the protocol can vouch for has been checked. */
    void (*received)(void *ctx, uint64_t offset, const void *bytes, size_t n_bytes);
    /*
     * Called once, last; the transfer is gone. err is NULL when all bytes were received. Codes:
     *   ENOENT      there is no such object
     *   EACCES      the server refuses the credentials, or that there are none
     *   EOPNOTSUPP  the server has no ranges, and the object is too large to be taken whole
     *   ESTALE      the object is another one than when it was opened, also for all later calls
     *   EINVAL      a name that is wrong, or settings in the environment
     *   EHOSTUNREACH  no server, or no proxy, answers there
     *   EIO         whatever else, after the retries
     */
    void (*done)(void *ctx, const struct wfs_error *err);
};

/*
 * Makes the loop of this process. Reads all that identifies the user, from the environment and the
 * home directory; later on, only the certificates and what the resolver needs are opened. Settings
 * that are wrong are reported when they are needed.
 */
int http_new(struct http **out, const struct http_settings *settings, struct wfs_error *err);

/* Objects have been freed. */
void http_free(struct http *http);

/*
 * Runs transfers, until a descriptor of extra is ready (its revents are set), something was called
 * back, or ms are over (-1: no limit). -ENOMEM, -EIO when the loop itself fails.
 */
int http_wait(struct http *http, struct pollfd *extra, unsigned n_extra, int ms);

/*
 * Begins the first request for an object, which asks for head_bytes of it: opened, received, done.
 * With 0 it asks for the header alone, once and in HTTP_QUESTION_S at most, and goes nowhere else
 * when the Hub says which commit it is: the name that opened gets has it. Where the server has no
 * ranges, received gets the whole object. -EINVAL for a name that is none, -ENOMEM; err gets a
 * sentence then, and nothing is called.
 */
int http_object_open(struct http *http, const char *name, uint64_t head_bytes,
                     const struct http_calls *calls, void *ctx, struct http_object **out,
                     struct wfs_error *err);

/* Returns the transfer that opens it, until that is done; then NULL. */
struct http_transfer *http_object_opening(const struct http_object *object);

/* Prepares for n requests at once to where an open object came from. */
void http_object_prepare(struct http_object *object, uint64_t n);

/* Cancels its transfers. */
void http_object_free(struct http_object *object);

/*
 * Begins a transfer of n_bytes (at least 1) at offset, inside of the object, which has been opened.
 * -ENOMEM. *out is valid until done is called.
 */
int http_get(struct http_object *object, uint64_t offset, uint64_t n_bytes,
             const struct http_calls *calls, void *ctx, struct http_transfer **out);

/* Ends a transfer without calling done. */
void http_cancel(struct http_transfer *transfer);

#endif
