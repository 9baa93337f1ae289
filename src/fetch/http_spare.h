/* SPDX-License-Identifier: MIT */
/*
 * Connections that are opened before there are requests for them, so that many requests that begin
 * at once need not wait for that. What is not used soon is closed.
 */
#ifndef WFS_HTTP_SPARE_H
#define WFS_HTTP_SPARE_H

#include <curl/curl.h>
#include <sys/socket.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_SPARE_MAX = 100 };

/* A zeroed one has none. */
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

/* Sets the options of a handle that let it take one. Not 0 when that fails. */
int http_spares_offer(struct http_spares *spares, CURL *easy);

#endif
