/* SPDX-License-Identifier: MIT */
/*
 * What to do about a server that refuses a request, as far as that is known.
 */
#ifndef WFS_HTTP_HINT_H
#define WFS_HTTP_HINT_H

#include "fetch/http_answer.h"
#include "fetch/http_place.h"

struct strbuf;

/*
 * Adds it to a text, "; " before it. body is the text of the answer, of which servers of S3 have
 * one; is_first is false when a redirect has led to another host.
 */
void http_hint(struct strbuf *text, const struct http_place *place,
               const struct http_answer *answer, bool is_first, const char *body);

#endif
