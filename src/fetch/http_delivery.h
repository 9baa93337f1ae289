/* SPDX-License-Identifier: MIT */
/*
 * From an answer to the caller: its header is judged, its body delivered. What a verdict leads to
 * is decided elsewhere.
 */
#ifndef WFS_HTTP_DELIVERY_H
#define WFS_HTTP_DELIVERY_H

#include "fetch/http_state.h"

enum {
    HTTP_HELD_MAX = 4 << 20, /* bytes of a range whose answer has no length, held until complete */
    HTTP_HELD_ALL_MAX = 128 << 20, /* of all bodies that are held at the same time */
    HTTP_DRAIN_MAX = 16384, /* bytes of an answer that is not used, read to keep the connection */
    HTTP_DRAIN_MS = 2000,   /* time for that */
};

/* For libcurl; ctx is the transfer. */
size_t http_delivery_header(char *bytes, size_t size, size_t n, void *ctx);
size_t http_delivery_body(char *bytes, size_t size, size_t n, void *ctx);

/* Comes to a verdict about a request that has ended, for which libcurl has a result. */
void http_delivery_end(struct http_transfer *transfer, CURLcode result);

#endif
