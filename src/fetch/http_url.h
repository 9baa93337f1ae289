/* SPDX-License-Identifier: MIT */
/*
 * URLs of http and https: taken apart, and resolved. What is a secret is kept apart from the rest.
 */
#ifndef WFS_HTTP_URL_H
#define WFS_HTTP_URL_H

#include <weightfs/error.h>

#include <stdbool.h>

/* A zeroed struct is none. All texts are malloc'ed. */
struct http_url {
    char *text;   /* with the query, without user and fragment */
    char *origin; /* "https://host:443": where credentials may go */
    char *host;
    char *user, *password; /* decoded; NULL: none */
};

/* Parses one; blanks and characters that are not ASCII are encoded. -EINVAL, -ENOMEM. */
int http_url_parse(struct http_url *url, const char *text, struct wfs_error *err);

/* Resolves where a redirect of `from` leads to. User and password in it are left out. -EIO for
 * another scheme, for one from https to http, and for what cannot be parsed; -ENOMEM. */
int http_url_follow(struct http_url *url, const char *from, const char *location,
                    struct wfs_error *err);
void http_url_done(struct http_url *url);

#define auto_http_url cleanup(http_url_done)

/* Adds text with escapes for all but letters, digits, "-._~", and slashes where they are kept. */
struct strbuf;
void http_url_escape(struct strbuf *out, const char *text, bool keeps_slashes);

#endif
