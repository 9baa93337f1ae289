/* SPDX-License-Identifier: MIT */
/*
 * What the caller of the engine sets, and what the engine reports.
 */
#ifndef WFS_HTTP_CALLS_H
#define WFS_HTTP_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/error.h>

struct http_settings {
    unsigned retries;     /* of a request that failed, each after a pause three times as long */
    unsigned timeout_s;   /* without a byte; 0: no limit */
    const char *endpoint; /* of s3://; NULL: what the environment says. Copied */
    unsigned pause_ms;    /* before the first retry; 0: 300 */
    unsigned n_requests;  /* at a time; 0: 16, which is also what a server gets that refuses some */
};

/* What later answers are compared with, so that bytes of two versions are never mixed. */
enum http_validator {
    HTTP_BY_ETAG, /* strong */
    HTTP_BY_DATE, /* Last-Modified, and the size */
    HTTP_BY_SIZE, /* the server offers nothing better */
};

/* Borrowed until the object is freed. */
struct http_facts {
    const char *name; /* of the object, as http_object_open takes it: with the path that was found,
                         for "hf://OWNER/NAME" */
    uint64_t n_bytes;
    enum http_validator kind;
    const char *validator; /* the header's text; "" by size only */
    bool is_whole; /* the server has no ranges: the first request delivers all bytes, and http_get
                      transfers all of them again */
};

/*
 * What a transfer reports, from inside of http_wait. In them, http_get, http_cancel,
 * http_object_open and http_object_free may be called.
 */
struct http_calls {
    /* Called once, before any byte, for the transfer that opens an object. NULL for http_get. */
    void (*opened)(void *ctx, const struct http_facts *facts);
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

#endif
