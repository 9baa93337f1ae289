/* SPDX-License-Identifier: MIT */
/*
 * All that this process knows to identify itself with, read from the environment and the home
 * directory before the sandbox closes. What is wrong with it is reported when it is needed.
 */
#ifndef WFS_HTTP_CREDENTIALS_H
#define WFS_HTTP_CREDENTIALS_H

#include "fetch/aws.h"

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

#endif
