/* SPDX-License-Identifier: MIT */
/*
 * One HTTP request as libcurl takes it: options, headers, and why it failed. It does not know what
 * is done with the answer.
 */
#ifndef WFS_HTTP_REQUEST_H
#define WFS_HTTP_REQUEST_H

#include "fetch/http_place.h"
#include "fetch/http_spare.h"
#include "fetch/http_verdict.h"

#include <curl/curl.h>

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
    bool is_fresh; /* on a connection of its own: the one before was silent */
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
