/* SPDX-License-Identifier: MIT */
/*
 * One HTTP request as libcurl takes it: options, headers, its connection, and why it failed. It
 * does not know what is done with the answer.
 */
#ifndef WFS_HTTP_REQUEST_H
#define WFS_HTTP_REQUEST_H

#include "fetch/http_answer.h"
#include "fetch/http_place.h"

#include <curl/curl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { HTTP_SPARE_MAX = 100 };

/*
 * Connections that are opened before there are requests for them, so that many requests that begin
 * at once need not wait for that. What is not used soon is closed. A zeroed one has none.
 */
struct http_spares {
    struct sockaddr_storage address; /* of the connection that was opened last */
    socklen_t n_address;             /* 0: there was none */
    int type, protocol;
    int fds[HTTP_SPARE_MAX]; /* to that address; connected, or about to be */
    size_t n;
    int64_t until_ms; /* 0: no time is known */
    bool has_taken;   /* libcurl has just got one */
    int taken;
};

/* Begins to connect n times to where the last connection went. */
void http_spares_open(struct http_spares *spares, size_t n);

/* Closes them when their time is over. Returns the time until that, 0: it was just over; -1: never.
 */
int64_t http_spares_age(struct http_spares *spares, int64_t now);
void http_spares_close(struct http_spares *spares);

/* The places of certificates: curl's own or those that the environment names. NULL: curl's. */
struct http_trust {
    const char *file, *directory;
};

struct http_request {
    CURL *easy;
    struct curl_slist *headers;
    char message[CURL_ERROR_SIZE];
};

/* What a request is for; all is copied. */
struct http_asked {
    const char *url;
    const struct http_place *identity; /* NULL: the request is nobody's */
    const struct http_known *known;
    uint64_t start, end;
    const struct http_trust *trust;
    unsigned timeout_s;
    struct http_spares *spares;
    bool is_question; /* the header alone is asked for */
    bool is_fresh;    /* on a connection of its own: the one before was silent */
};

/* Both get ctx; as CURLOPT_HEADERFUNCTION and CURLOPT_WRITEFUNCTION. */
typedef size_t (*http_chunk)(char *bytes, size_t size, size_t n, void *ctx);

/* Makes a request that calls back with ctx, which curl_easy_getinfo finds as CURLINFO_PRIVATE.
 * -ENOMEM. The request stays where it is: curl points into it. */
int http_request_make(struct http_request *request, const struct http_asked *asked,
                      http_chunk on_header, http_chunk on_body, void *ctx);

/* Returns HTTP_RETRY or HTTP_FAIL for a request that curl gave up, and its reason. */
enum http_verdict http_request_failure(const struct http_request *request, CURLcode result,
                                       const struct http_known *known, struct wfs_error *err);
void http_request_done(struct http_request *request);

#endif
