/* SPDX-License-Identifier: MIT */
/*
 * All that this process knows to identify itself with, read from the environment and the home
 * directory before the sandbox closes. What is wrong with it is reported when it is needed.
 */
#ifndef WFS_HTTP_CREDENTIALS_H
#define WFS_HTTP_CREDENTIALS_H

#include <weightfs/error.h>

#include <stdbool.h>

/* Returns the value of an environment variable; NULL where it is empty, too. */
const char *environment(const char *name);

/* Returns whether one is 1, on, yes or true, as the programs of the Hub and of AWS read them. */
bool environment_is_true(const char *name);

/* Whether no token is sent that the user did not give for the request. */
#define HUB_NO_TOKEN "HF_HUB_DISABLE_IMPLICIT_TOKEN"

/* Where a bucket is named: in the host for Amazon and in the path for others, or as the user says.
 */
enum aws_style { AWS_STYLE_AUTO, AWS_STYLE_PATH, AWS_STYLE_HOST };

/* What the environment and the two files of AWS say. Profiles that get their keys from a program or
 * a service are not supported. All texts are malloc'ed. */
struct aws {
    char *key, *secret; /* NULL: requests are not signed */
    char *session;      /* token; NULL: none */
    char *region;
    char *endpoint; /* NULL: that of Amazon */
    enum aws_style style;
};

/* The Hub, where HF_ENDPOINT names no other server. */
#define HTTP_HUB_USUAL "https://huggingface.co"

/* A zeroed struct has nothing. */
struct http_credentials {
    struct aws aws;
    char *hub;       /* URL of the Hub, no slash at the end */
    char *hub_token; /* NULL: none */
    char *netrc;     /* text of the file; NULL: none */
    struct wfs_error aws_problem, hub_problem;
};

/* endpoint is that of s3://, NULL: as the environment says. -ENOMEM. */
int http_credentials_read(struct http_credentials *credentials, const char *endpoint);
void http_credentials_done(struct http_credentials *credentials);

/*
 * Finds, in the text of a .netrc file, the first entry for the host, or the default; with a login,
 * the first one for that. *ret_user and *ret_password are malloc'ed, NULL when nothing was found.
 * -ENOMEM.
 */
int netrc_find(const char *text, const char *host, const char *login, char **ret_user,
               char **ret_password);

#endif
