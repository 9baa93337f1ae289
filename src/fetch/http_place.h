/* SPDX-License-Identifier: MIT */
/*
 * Where the name of an object leads: the URL of the first request, who asks, and what to do about a
 * server that refuses. Names are those of http, https, s3 and hf.
 */
#ifndef WFS_HTTP_PLACE_H
#define WFS_HTTP_PLACE_H

#include "fetch/http_answer.h"
#include "fetch/http_credentials.h"
#include "fetch/http_url.h"

enum http_service {
    HTTP_PLAIN,
    HTTP_HUB,
    HTTP_S3,
};

/* Credentials are for the origin of the URL only. Texts are malloc'ed. */
struct http_place {
    enum http_service service;
    struct http_url url; /* with user and password, for plain ones */
    char *bearer;        /* a token; NULL: none */
    char *signer;        /* "aws:amz:REGION:s3": user and password sign; NULL: nobody */
    char *session;       /* with it; NULL: none */
};

/* -EINVAL: err says how such names are spelled, or what is wrong in the settings; -ENOMEM. */
int http_place_find(struct http_place *place, const char *name,
                    const struct http_credentials *credentials, struct wfs_error *err);
void http_place_done(struct http_place *place);

/* Returns whether a request has something that others may not have: a token, keys, a user, or a
 * query, which may be a signature. */
bool http_place_is_private(const struct http_place *place);

/*
 * Returns the name of the i-th file that is looked for, malloc'ed, where the name is not one of a
 * file: "hf://OWNER/NAME[@REVISION]", or a folder, which ends in a slash. NULL: there is no i-th,
 * it is the name of a file, or out of memory.
 */
char *http_place_try(const char *name, unsigned i);

/* Returns true for "hf://OWNER/NAME[@REVISION]". */
bool http_place_is_repository(const char *name);

/* Returns the name with the revision replaced by a commit, malloc'ed; NULL: out of memory, or not a
 * name of the Hub. */
char *http_place_pin(const char *name, const char *commit);

/* Returns whether a refusal says that there is no such file, and another one may exist beside it.
 * body is the text of the answer. */
bool http_is_missing(const struct http_place *place, const struct http_answer *answer,
                     const char *body);

struct strbuf;

/*
 * Adds what to do about a refusal, as far as that is known, to a text, "; " before it. body is the
 * text of the answer, of which servers of S3 have one; is_first is false when a redirect has led to
 * another host.
 */
void http_hint(struct strbuf *text, const struct http_place *place,
               const struct http_answer *answer, bool is_first, const char *body);

#endif
