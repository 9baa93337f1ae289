/* SPDX-License-Identifier: MIT */
/*
 * A name of S3 is "s3://BUCKET/KEY", in which the escapes of URLs mean nothing; names of the Hub
 * are taken apart by hub.h.
 */
#include "fetch/http_place.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/hub.h>
#include <weightfs/strbuf.h>
#include <weightfs/url.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { N_SCHEME = 5 }; /* "s3://" and "hf://" */

static bool has_scheme(const char *name, const char *scheme)
{
    return strncasecmp(name, scheme, strlen(scheme)) == 0;
}

/* ---- the Hub ---- */

/* Refuses the pages of the Hub that show a repository or a file. Another server may have a file in
 * place of a page with so short a path. */
static int refuse_page(const struct http_place *place, const char *hub, struct wfs_error *err)
{
    struct http_url page auto_http_url = {0};
    const size_t n_hub = strlen(hub);
    if (http_url_parse(&page, hub, NULL) < 0 || strcmp(page.origin, place->url.origin) != 0 ||
        strncasecmp(place->url.text, hub, n_hub) != 0 || place->url.text[n_hub] != '/')
        return 0;
    const char *owner = place->url.text + n_hub + 1, *name = strchr(owner, '/');
    const char *kind = name == NULL ? NULL : strchr(name + 1, '/');
    const bool is_short = name != NULL && name[1] != '\0' && (kind == NULL || kind[1] == '\0');
    const bool is_file = kind != NULL && strncmp(kind, "/blob/", 6) == 0;
    const bool is_tree = kind != NULL && strncmp(kind, "/tree/", 6) == 0;
    if (!is_file && !is_tree && !(is_short && strcmp(hub, HTTP_HUB_USUAL) == 0))
        return 0;
    return wfs_fail(err, EINVAL, "it is the page of a %s; write %s",
                    is_file ? "file" : "repository",
                    is_file ? "'resolve' in place of 'blob'" : "hf://OWNER/NAME");
}

static int find_hub(struct http_place *place, const char *name,
                    const struct http_credentials *credentials, struct wfs_error *err)
{
    struct hub_name hub;
    struct strbuf url cleanup(strbuf_done) = {0};
    if (!hub_name_parse(name, &hub) || hub.path == NULL)
        return wfs_fail(err, EINVAL,
                        "expected hf://OWNER/NAME[@REVISION][/PATH], a repository of a model");
    if (credentials->hub_problem.code != 0)
        return wfs_fail(err, credentials->hub_problem.code, "%s", credentials->hub_problem.text);
    strbuf_printf(&url, "%s/%.*s/resolve/", credentials->hub, (int)hub.n_repository,
                  hub.repository);
    autofree char *revision = hub_name_revision(&hub); /* one component of the path */
    if (revision == NULL)
        return wfs_fail_memory(err);
    http_url_escape(&url, revision, false);
    strbuf_puts(&url, "/");
    http_url_escape(&url, hub.path, true);
    place->service = HTTP_HUB;
    if (url.has_failed)
        return wfs_fail_memory(err);
    if (!has_scheme(credentials->hub, "https://") && !has_scheme(credentials->hub, "http://"))
        return wfs_fail(err, EINVAL, "HF_ENDPOINT is not a URL of http or https");
    return http_url_parse(&place->url, url.bytes, err);
}

/* Returns whether a name is that of a folder: it ends in a slash, with something before it. */
static bool is_folder(const char *name)
{
    const size_t n = strlen(name);
    const bool is_http = has_scheme(name, "http://") || has_scheme(name, "https://");
    const bool is_bucket =
        has_scheme(name, "s3://") && strchr(name + N_SCHEME, '/') == name + n - 1;
    const char *path = strstr(name, "://");
    return n > 0 && name[n - 1] == '/' && path != NULL && path + strlen("://") < name + n - 1 &&
           !is_bucket && !(is_http && strpbrk(name, "?#") != NULL);
}

bool http_place_is_repository(const char *name)
{
    struct hub_name hub;
    return hub_name_parse(name, &hub) && hub.path == NULL;
}

/* Returns the i-th name. The top of a repository is hardly ever a distributed checkpoint, which is
 * the first of them all. */
static const char *file_of(const char *name, unsigned i)
{
    if (!http_place_is_repository(name))
        return is_folder(name) ? wfs_folder_file(i) : NULL;
    const char *file = wfs_folder_file(i + 1);
    return file == NULL && i > 0 && wfs_folder_file(i) != NULL ? wfs_folder_file(0) : file;
}

char *http_place_try(const char *name, unsigned i)
{
    char *ret;
    const char *file = file_of(name, i);
    const size_t n = strlen(name);
    return file == NULL ||
                   asprintf(&ret, "%.*s/%s", (int)(name[n - 1] == '/' ? n - 1 : n), name, file) < 0
               ? NULL
               : ret;
}

char *http_place_pin(const char *name, const char *commit)
{
    struct hub_name hub;
    char *ret;
    if (!hub_name_parse(name, &hub) || hub.path == NULL ||
        asprintf(&ret, "hf://%.*s@%s/%s", (int)hub.n_repository, hub.repository, commit, hub.path) <
            0)
        return NULL;
    return ret;
}

/* ---- S3 ---- */

/* Returns true for a host of Amazon. */
static bool is_amazon(const char *host)
{
    static const char *const ends[] = {".amazonaws.com", ".amazonaws.com.cn"};
    const size_t n = strlen(host);
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        const size_t n_end = strlen(ends[i]);
        if (n > n_end && strcmp(host + n - n_end, ends[i]) == 0)
            return true;
    }
    return false;
}

/* Returns true for a bucket that can be the front of a host name with a certificate. */
static bool is_host_label(const char *bucket, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!islower((unsigned char)bucket[i]) && !isdigit((unsigned char)bucket[i]) &&
            bucket[i] != '-')
            return false;
    return n >= 3 && n <= 63 && bucket[0] != '-' && bucket[n - 1] != '-';
}

/* Makes the URL of an object of S3. */
static int make_s3_url(struct strbuf *out, const char *bucket, size_t n_bucket, const char *key,
                       const struct aws *aws, struct wfs_error *err)
{
    struct http_url endpoint auto_http_url = {0};
    struct strbuf usual cleanup(strbuf_done) = {0};
    strbuf_printf(&usual, "https://s3.%s.amazonaws.com%s", aws->region,
                  strncmp(aws->region, "cn-", 3) == 0 ? ".cn" : "");
    const char *text = aws->endpoint != NULL ? aws->endpoint : usual.bytes;
    if (usual.has_failed)
        return wfs_fail_memory(err);
    if (!has_scheme(text, "http://") && !has_scheme(text, "https://"))
        return wfs_fail(err, EINVAL,
                        "the endpoint for s3:// is not a URL of http or https; "
                        "AWS_ENDPOINT_URL_S3 or endpoint= sets it");
    const int rc = http_url_parse(&endpoint, text, err);
    if (rc < 0)
        return rc;
    size_t n = strcspn(endpoint.text, "?#");
    while (n > 0 && endpoint.text[n - 1] == '/')
        n--;
    const size_t n_scheme = (size_t)(strstr(endpoint.text, "//") + 2 - endpoint.text);
    const bool is_host =
        aws->style == AWS_STYLE_HOST || (aws->style == AWS_STYLE_AUTO && is_amazon(endpoint.host));
    if (is_host && is_host_label(bucket, n_bucket))
        strbuf_printf(out, "%.*s%.*s.%.*s/", (int)n_scheme, endpoint.text, (int)n_bucket, bucket,
                      (int)(n - n_scheme), endpoint.text + n_scheme);
    else
        strbuf_printf(out, "%.*s/%.*s/", (int)n, endpoint.text, (int)n_bucket, bucket);
    http_url_escape(out, key, true);
    return out->has_failed ? wfs_fail_memory(err) : 0;
}

static int find_s3(struct http_place *place, const char *name,
                   const struct http_credentials *credentials, struct wfs_error *err)
{
    const struct aws *aws = &credentials->aws;
    const char *bucket = name + N_SCHEME;
    const size_t n_bucket = url_word_length(bucket);
    const char *key = bucket + n_bucket + 1;
    struct strbuf url cleanup(strbuf_done) = {0};
    if (n_bucket == 0 || bucket[n_bucket] != '/' || *key == '\0')
        return wfs_fail(err, EINVAL, "expected s3://BUCKET/KEY");
    if (strstr(key, "?versionId=") != NULL)
        return wfs_fail(err, EOPNOTSUPP,
                        "a version of an object cannot be named: use a signed URL of it");
    if (url_path_is_odd(key, true))
        return wfs_fail(err, EOPNOTSUPP,
                        "a key with '.' or '..' between slashes cannot be asked for");
    if (credentials->aws_problem.code != 0)
        return wfs_fail(err, credentials->aws_problem.code, "%s", credentials->aws_problem.text);
    int rc = make_s3_url(&url, bucket, n_bucket, key, aws, err);
    if (rc == 0)
        rc = http_url_parse(&place->url, url.bytes, err);
    place->service = HTTP_S3;
    if (rc < 0 || aws->key == NULL)
        return rc;
    place->url.user = strdup(aws->key);
    place->url.password = strdup(aws->secret);
    place->session = aws->session == NULL ? NULL : strdup(aws->session);
    if (asprintf(&place->signer, "aws:amz:%s:s3", aws->region) < 0)
        place->signer = NULL;
    return place->url.user == NULL || place->url.password == NULL || place->signer == NULL ||
                   (aws->session != NULL && place->session == NULL)
               ? wfs_fail_memory(err)
               : 0;
}

/* ---- all ---- */

/* Adds the token for the host of the Hub, and what .netrc has for another one. */
static int identify(struct http_place *place, const struct http_credentials *credentials,
                    struct wfs_error *err)
{
    struct http_url hub auto_http_url = {0};
    if (place->service == HTTP_S3)
        return 0;
    if (credentials->hub_token != NULL && http_url_parse(&hub, credentials->hub, NULL) == 0 &&
        strcmp(hub.origin, place->url.origin) == 0) {
        place->bearer = strdup(credentials->hub_token);
        return place->bearer == NULL ? wfs_fail_memory(err) : 0;
    }
    if (credentials->netrc == NULL || place->url.password != NULL)
        return 0;
    char *user, *password;
    if (netrc_find(credentials->netrc, place->url.host, place->url.user, &user, &password) < 0)
        return wfs_fail_memory(err);
    if (user == NULL && password == NULL)
        return 0;
    free(place->url.user);
    place->url.user = user;
    place->url.password = password;
    return 0;
}

int http_place_find(struct http_place *place, const char *name,
                    const struct http_credentials *credentials, struct wfs_error *err)
{
    *place = (struct http_place){0};
    int rc;
    if (has_scheme(name, "hf://"))
        rc = find_hub(place, name, credentials, err);
    else if (has_scheme(name, "s3://"))
        rc = find_s3(place, name, credentials, err);
    else if (has_scheme(name, "https://") || has_scheme(name, "http://"))
        rc = http_url_parse(&place->url, name, err);
    else
        rc = wfs_fail(err, EINVAL, "expected a URL of https, http, s3 or hf");
    if (rc == 0 && place->service == HTTP_PLAIN)
        rc = refuse_page(place, credentials->hub, err);
    if (rc == 0)
        rc = identify(place, credentials, err);
    if (rc < 0)
        http_place_done(place);
    return rc;
}

void http_place_done(struct http_place *place)
{
    http_url_done(&place->url);
    free(place->bearer);
    free(place->signer);
    free(place->session);
    *place = (struct http_place){0};
}

bool http_place_is_private(const struct http_place *place)
{
    return place->bearer != NULL || place->url.user != NULL || place->url.password != NULL ||
           strchr(place->url.text, '?') != NULL;
}

/* ---- refusals ---- */

/* A server that has something to hide answers the same for what is private and what does not exist.
 */
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

bool http_is_missing(const struct http_place *place, const struct http_answer *answer,
                     const char *body)
{
    char code[CODE_MAX];
    const bool is_hub_file =
        *answer->problem == '\0' || strcmp(answer->problem, "EntryNotFound") == 0;
    if (place->service != HTTP_S3)
        return answer->status == 404 && is_hub_file;
    /* S3 answers 403, too, whom it does not show a list of objects. */
    return (answer->status == 403 || answer->status == 404) &&
           (!find_code(body, code) || strcmp(code, "AccessDenied") == 0 ||
            strcmp(code, "NoSuchKey") == 0);
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
    else if (has_code && strcmp(code, "InvalidObjectState") == 0)
        strbuf_puts(text, "; the object is archived: restore it first, as with 'aws s3api "
                          "restore-object'");
    else if (is_denied && place->signer == NULL)
        strbuf_puts(text, "; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (the "
                          "role of a machine is not used)");
    else if (is_denied)
        strbuf_puts(text, "; the keys of AWS_PROFILE or AWS_ACCESS_KEY_ID give no access, or there "
                          "is no such object; buckets whose requester pays are not read");
}

static void hint_hub(struct strbuf *text, const struct http_place *place,
                     const struct http_answer *answer)
{
    const bool has_token = place->bearer != NULL;
    const char *set = environment_is_true(HUB_NO_TOKEN) ? "unset " HUB_NO_TOKEN : "set HF_TOKEN";
    if (answer->status == 404 && strcmp(answer->problem, "RepoNotFound") == 0)
        strbuf_puts(text, "; the Hub has no such repository, or shows it to others only");
    else if (strcmp(answer->problem, "RevisionNotFound") == 0)
        strbuf_puts(text, "; the repository has no such revision");
    else if (strcmp(answer->problem, "EntryNotFound") == 0)
        strbuf_puts(text, "; the repository has no such file in this revision");
    else if (strcmp(answer->problem, "DisabledRepo") == 0)
        strbuf_puts(text, "; the Hub has disabled the repository");
    else if (answer->status == 404)
        strbuf_puts(text, "; the Hub has no such repository, revision or file");
    else if (answer->status == 401 && !has_token)
        strbuf_printf(text, "; the repository is private or gated, or does not exist; %s", set);
    else if (answer->status == 401)
        strbuf_puts(text, "; the token is not valid, or the repository does not exist; check "
                          "HF_TOKEN");
    else if (answer->status == 403 && !has_token)
        strbuf_printf(text, "; the repository is gated; %s", set);
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
