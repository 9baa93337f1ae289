/* SPDX-License-Identifier: MIT */
/*
 * The header of an answer: what is used of it, line by line as it arrives and with a limit to its
 * length, and what it means for the request, whether its body is taken. It knows no connection.
 */
#ifndef WFS_HTTP_ANSWER_H
#define WFS_HTTP_ANSWER_H

#include <weightfs/error.h>
#include "fetch/http.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed struct is an answer of which nothing arrived. */
struct http_answer {
    unsigned status; /* 0: no answer yet */
    uint64_t n_header_bytes;
    bool has_length; /* Content-Length */
    uint64_t length;
    bool has_range;      /* Content-Range, with the size of the object */
    bool is_empty_range; /* the range could not be satisfied, and the size is all it says */
    uint64_t first, last, n_total;
    bool is_encoded;        /* gzip or the like, or not known */
    char encoding[32];      /* its name; "": none, or an odd one */
    bool is_bad;            /* contradicts itself, or cannot be parsed */
    char tag[HTTP_TAG_MAX]; /* of an ETag, with the quotes; "": none, or too long */
    bool is_weak_tag;
    char modified[40];         /* Last-Modified; "": none */
    char date[40];             /* Date; "": none */
    char commit[41];           /* X-Repo-Commit of the Hub, 40 digits; "": none */
    char linked[HTTP_TAG_MAX]; /* X-Linked-ETag: that of the object it redirects to; "": none */
    char problem[32];          /* X-Error-Code of the Hub; "": none */
    char region[64];           /* X-Amz-Bucket-Region; "": none */
    bool is_fleeting;          /* Cache-Control: no-store */
    char *location;            /* malloc'ed; NULL: none */
};

/*
 * Takes one line, with or without its line end. A status line begins a new answer, but what
 * came before counts for the limit. -E2BIG, -ENOMEM.
 */
int http_answer_line(struct http_answer *answer, const char *line, size_t n_bytes);

/* Counts a line that is not looked at. -E2BIG. */
int http_answer_skip(struct http_answer *answer, size_t n_bytes);
void http_answer_done(struct http_answer *answer);

enum http_verdict {
    HTTP_NO_VERDICT, /* no answer yet */
    HTTP_TAKE,       /* the body is the range, or the whole object */
    HTTP_EMPTY,      /* the object has no bytes */
    HTTP_REDIRECT,
    HTTP_REFUSED, /* 401, 403, 404, 410: a signed URL that has expired, or an error */
    HTTP_AGAIN,   /* at once, and not the same way */
    HTTP_LATER,   /* when another version would have another validator */
    HTTP_RETRY,   /* after a pause */
    HTTP_FAIL,
};

/* The largest object that is taken whole, from a server without ranges. */
#define HTTP_WHOLE_MAX (UINT64_C(64) << 20)

/* Judges the answer to a request for [start, end); err gets the reason where that fails. */
enum http_verdict http_judge(const struct http_answer *answer, const struct http_known *known,
                             uint64_t start, uint64_t end, struct wfs_error *err);

/*
 * Returns true for an object that was modified in the second of the answer, or just before it.
 * Another version of the same second has the same date, and the same ETag where a server makes that
 * of the date. After HTTP_YOUNG_S it has not (RFC 9110, 8.8.2.2).
 */
bool http_is_young(const struct http_answer *answer);
enum { HTTP_YOUNG_S = 2 };

/* Notes what the first good answer says. n_bytes is the length of the object. */
void http_learn(struct http_known *known, const struct http_answer *answer, uint64_t n_bytes);

#endif
