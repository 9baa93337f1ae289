/* SPDX-License-Identifier: MIT */
/*
 * What the header of an answer means for the request: whether its body is taken. It knows no
 * connection and keeps nothing.
 */
#ifndef WFS_HTTP_VERDICT_H
#define WFS_HTTP_VERDICT_H

#include "fetch/http_answer.h"
#include "fetch/http_calls.h"

#include <weightfs/error.h>

enum http_verdict {
    HTTP_NO_VERDICT, /* no answer yet */
    HTTP_TAKE,       /* the body is the range, or the whole object */
    HTTP_EMPTY,      /* the object has no bytes */
    HTTP_REDIRECT,
    HTTP_REFUSED, /* 401, 403, 404, 410: a signed URL that has expired, or an error */
    HTTP_AGAIN,   /* at once, and not the same way */
    HTTP_RETRY,   /* after a pause */
    HTTP_FAIL,
};

/* The largest object that is taken whole, from a server without ranges. */
#define HTTP_WHOLE_MAX (UINT64_C(64) << 20)

/* What is known of an object. A zeroed struct: nothing. */
struct http_known {
    bool is_open, is_whole;
    uint64_t n_bytes;
    enum http_validator kind;
    char validator[HTTP_TAG_MAX];
};

/* Judges the answer to a request for [start, end); err gets the reason where that fails. */
enum http_verdict http_judge(const struct http_answer *answer, const struct http_known *known,
                             uint64_t start, uint64_t end, struct wfs_error *err);

/* Notes what the first good answer says. n_bytes is the length of the object. */
void http_learn(struct http_known *known, const struct http_answer *answer, uint64_t n_bytes);

#endif
