/* SPDX-License-Identifier: MIT */
/*
 * What the environment and the two files of AWS say: keys, region, endpoint. Profiles that get
 * their keys from a program or a service are not supported.
 */
#ifndef WFS_AWS_H
#define WFS_AWS_H

#include <weightfs/error.h>

/* A zeroed struct has nothing. All texts are malloc'ed. */
struct aws {
    char *key, *secret; /* NULL: requests are not signed */
    char *session;      /* token; NULL: none */
    char *region;
    char *endpoint; /* NULL: that of Amazon */
};

/* Reads all of it. An endpoint that is not NULL goes before all others. -EINVAL: err says what to
 * set; -ENOMEM. aws_done is due in any case. */
int aws_read(struct aws *aws, const char *endpoint, struct wfs_error *err);
void aws_done(struct aws *aws);

#endif
