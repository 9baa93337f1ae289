/* SPDX-License-Identifier: MIT */
/*
 * libcurl's parser, so that what is checked here is what is connected to.
 */
#include "fetch/http_url.h"

#include <weightfs/cleanup.h>
#include <weightfs/percent.h>
#include <weightfs/strbuf.h>

#include <curl/curl.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static void free_handle(CURLU **handle)
{
    curl_url_cleanup(*handle);
}

/* Gets a part, malloc'ed by us; *ret is NULL where there is none. */
static int get_part(CURLU *handle, CURLUPart part, unsigned flags, char **ret)
{
    char *text = NULL;
    const CURLUcode code = curl_url_get(handle, part, &text, flags);
    *ret = code == CURLUE_OK ? strdup(text) : NULL;
    curl_free(text);
    return code == CURLUE_OUT_OF_MEMORY || (code == CURLUE_OK && *ret == NULL) ? -ENOMEM : 0;
}

static bool is_http(const char *scheme)
{
    return scheme != NULL && (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
}

/* Returns whether the name of a network interface has only characters that RFC 6874 lets it have.
 */
static bool is_zone(const char *zone)
{
    while (isalnum((unsigned char)*zone) || (*zone != '\0' && strchr("-._~", *zone) != NULL))
        zone++;
    return *zone == '\0';
}

/* Takes a parsed URL apart. */
static int take_apart(CURLU *handle, struct http_url *url)
{
    autofree char *scheme = NULL, *port = NULL, *zone = NULL;
    if (get_part(handle, CURLUPART_SCHEME, 0, &scheme) < 0 ||
        get_part(handle, CURLUPART_PORT, CURLU_DEFAULT_PORT, &port) < 0 ||
        get_part(handle, CURLUPART_HOST, 0, &url->host) < 0 ||
        get_part(handle, CURLUPART_ZONEID, 0, &zone) < 0 ||
        get_part(handle, CURLUPART_USER, CURLU_URLDECODE, &url->user) < 0 ||
        get_part(handle, CURLUPART_PASSWORD, CURLU_URLDECODE, &url->password) < 0)
        return -ENOMEM;
    if (!is_http(scheme) || url->host == NULL || *url->host == '\0' ||
        (zone != NULL && !is_zone(zone)))
        return -EINVAL;
    for (char *c = url->host; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    if (asprintf(&url->origin, "%s://%s:%s", scheme, url->host, port) < 0) {
        url->origin = NULL;
        return -ENOMEM;
    }
    curl_url_set(handle, CURLUPART_USER, NULL, 0);
    curl_url_set(handle, CURLUPART_PASSWORD, NULL, 0);
    curl_url_set(handle, CURLUPART_FRAGMENT, NULL, 0);
    if (get_part(handle, CURLUPART_URL, 0, &url->text) < 0)
        return -ENOMEM;
    return url->text == NULL ? -EINVAL : 0;
}

enum { FLAGS = CURLU_PATH_AS_IS | CURLU_URLENCODE | CURLU_ALLOW_SPACE };

int http_url_parse(struct http_url *url, const char *text, struct wfs_error *err)
{
    CURLU *handle cleanup(free_handle) = curl_url();
    *url = (struct http_url){0};
    if (handle == NULL)
        return wfs_fail_memory(err);
    const CURLUcode code = curl_url_set(handle, CURLUPART_URL, text, FLAGS);
    int rc = code == CURLUE_OUT_OF_MEMORY ? -ENOMEM : code != CURLUE_OK ? -EINVAL : 0;
    if (rc == 0)
        rc = take_apart(handle, url);
    bool is_foreign = false;
    for (const char *c = rc == 0 ? url->host : ""; *c != '\0'; c++)
        is_foreign |= (unsigned char)*c >= 0x80;
    if (rc < 0 || is_foreign)
        http_url_done(url);
    if (is_foreign)
        return wfs_fail(err, EINVAL,
                        "the host has letters that are not ASCII: write it as xn--...");
    const char *hint = code != CURLUE_OK && strchr(text, '@') != NULL
                           ? "; in a user or password, / ? # @ are written %2F %3F %23 %40"
                           : "";
    if (rc == -EINVAL)
        return wfs_fail(err, EINVAL, "the URL is not well-formed%s%s%s",
                        code == CURLUE_OK ? "" : ": ",
                        code == CURLUE_OK ? "" : curl_url_strerror(code), hint);
    return rc < 0 ? wfs_fail_memory(err) : 0;
}

/* The scheme of a redirect, before libcurl sees it; "" for a relative one. */
static void scheme_of(const char *location, char ret[16])
{
    size_t n = 0;
    while (n < 15 &&
           (isalnum((unsigned char)location[n]) || (n > 0 && strchr("+-.", location[n]))) &&
           location[n] != '\0') {
        ret[n] = (char)tolower((unsigned char)location[n]);
        n++;
    }
    ret[location[n] == ':' ? n : 0] = '\0';
}

int http_url_follow(struct http_url *url, const char *from, const char *location,
                    struct wfs_error *err)
{
    CURLU *handle cleanup(free_handle) = curl_url();
    char scheme[16];
    *url = (struct http_url){0};
    scheme_of(location, scheme);
    if (*scheme != '\0' && !is_http(scheme))
        return wfs_fail(err, EIO, "the server redirects to a URL of '%s', which is not followed",
                        scheme);
    if (handle == NULL || curl_url_set(handle, CURLUPART_URL, from, FLAGS) != CURLUE_OK)
        return wfs_fail_memory(err);
    const CURLUcode code = curl_url_set(handle, CURLUPART_URL, location, FLAGS);
    const int rc = code == CURLUE_OK              ? take_apart(handle, url)
                   : code == CURLUE_OUT_OF_MEMORY ? -ENOMEM
                                                  : -EINVAL;
    cleanup_free(&url->user);
    cleanup_free(&url->password);
    url->user = url->password = NULL;
    if (rc == 0 && strncmp(from, "https:", 6) == 0 && strncmp(url->text, "https:", 6) != 0) {
        http_url_done(url);
        return wfs_fail(err, EIO, "the server redirects from https to http, which is not followed");
    }
    if (rc == 0)
        return 0;
    http_url_done(url);
    return rc == -ENOMEM ? wfs_fail_memory(err)
                         : wfs_fail(err, EIO, "the server redirects to a malformed URL");
}

void http_url_done(struct http_url *url)
{
    char **const texts[] = {&url->text, &url->origin, &url->host, &url->user, &url->password};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        cleanup_free(texts[i]);
        *texts[i] = NULL;
    }
}

void http_url_escape(struct strbuf *out, const char *text, bool keeps_slashes)
{
    for (; *text != '\0'; text++) {
        const unsigned char byte = (unsigned char)*text;
        char code[PERCENT_N + 1] = {*text, '\0'};
        if (!isalnum(byte) && strchr("-._~", byte) == NULL && !(keeps_slashes && byte == '/'))
            percent_encode(byte, code);
        strbuf_puts(out, code);
    }
}
