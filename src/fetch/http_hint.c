/* SPDX-License-Identifier: MIT */
/*
 * A server that has something to hide answers the same for what is private and what does not exist.
 */
#include "fetch/http_hint.h"

#include <weightfs/strbuf.h>

#include <ctype.h>
#include <string.h>

enum { CODE_MAX = 48 };

/* Finds the code of an error of S3, a word. */
static bool find_code(const char *body, char ret[CODE_MAX])
{
    static const char tag[] = "<Code>";
    const char *at = body == NULL ? NULL : strstr(body, tag);
    size_t n = 0;
    for (at = at == NULL ? "" : at + strlen(tag); isalnum((unsigned char)at[n]) && n < CODE_MAX - 1;
         n++)
        ret[n] = at[n];
    ret[n] = '\0';
    return n > 0 && at[n] == '<';
}

static void hint_s3(struct strbuf *text, const struct http_place *place,
                    const struct http_answer *answer, const char *body)
{
    char code[CODE_MAX];
    const bool has_code = find_code(body, code);
    const bool is_denied = answer->status == 401 || answer->status == 403;
    if (has_code)
        strbuf_printf(text, ": %s", code);
    if (answer->region[0] != '\0' && (answer->status == 301 || answer->status == 400))
        strbuf_printf(text, "; the bucket is in the region %s, which AWS_REGION sets",
                      answer->region);
    else if (answer->status == 301)
        strbuf_puts(text, "; the bucket is in another region, which AWS_REGION sets");
    else if (has_code && strcmp(code, "RequestTimeTooSkewed") == 0)
        strbuf_puts(text, "; the clock of this machine is wrong");
    else if (has_code && strcmp(code, "ExpiredToken") == 0)
        strbuf_puts(text, "; renew AWS_SESSION_TOKEN and the keys that belong to it");
    else if (has_code && strcmp(code, "InvalidToken") == 0)
        strbuf_puts(text, "; AWS_SESSION_TOKEN is not the one that belongs to the keys");
    else if (is_denied && place->signer == NULL)
        strbuf_puts(text, "; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (the "
                          "role of a machine is not used)");
    else if (is_denied)
        strbuf_puts(text, "; the keys of AWS_PROFILE or AWS_ACCESS_KEY_ID give no access, or there "
                          "is no such object");
}

static void hint_hub(struct strbuf *text, const struct http_place *place,
                     const struct http_answer *answer)
{
    const bool has_token = place->bearer != NULL;
    if (answer->status == 404)
        strbuf_puts(text, "; the Hub has no such repository, revision or file");
    else if (answer->status == 401 && !has_token)
        strbuf_puts(text, "; the repository is private or gated, or does not exist; set HF_TOKEN");
    else if (answer->status == 401)
        strbuf_puts(text, "; the token is not valid, or the repository does not exist; check "
                          "HF_TOKEN");
    else if (answer->status == 403 && !has_token)
        strbuf_puts(text, "; the repository is gated; set HF_TOKEN");
    else if (answer->status == 403)
        strbuf_puts(text, "; the owner of HF_TOKEN has no access; ask for it on the page of the "
                          "repository");
}

static void hint_plain(struct strbuf *text, const struct http_place *place,
                       const struct http_answer *answer)
{
    if (answer->status >= 300 && answer->status < 400)
        strbuf_puts(text, " without a Location");
    const bool has_user = place->url.user != NULL || place->url.password != NULL;
    if (answer->status != 401 && answer->status != 403)
        return;
    if (place->bearer != NULL)
        strbuf_puts(text, "; HF_TOKEN gives no access");
    else if (has_user)
        strbuf_puts(text, "; the user and password of the URL or of ~/.netrc are refused");
    else if (strchr(place->url.text, '?') != NULL)
        strbuf_puts(text, "; if the URL is signed, it has expired: get a new one");
    else
        strbuf_puts(text, "; put a user and password for this host into ~/.netrc");
}

void http_hint(struct strbuf *text, const struct http_place *place,
               const struct http_answer *answer, bool is_first, const char *body)
{
    if (!is_first && (answer->status == 401 || answer->status == 403))
        strbuf_puts(text, "; it is the server that the first one redirects to");
    else if (place->service == HTTP_S3)
        hint_s3(text, place, answer, body);
    else if (place->service == HTTP_HUB)
        hint_hub(text, place, answer);
    else
        hint_plain(text, place, answer);
}
