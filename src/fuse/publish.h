/* SPDX-License-Identifier: MIT */
/*
 * Publishing what a mount left that died: a driver without a mount, over the options that its base
 * says.
 */
#ifndef WFS_PUBLISH_H
#define WFS_PUBLISH_H

#include <stdbool.h>

struct recover_request {
    const char *stage; /* the staging directory, not open */
    const char *base;  /* text of its base */
    const char *onto;  /* another source, or NULL */
    bool is_forced;    /* take what may be torn, replace an output that is not known */
};

/* Commits and removes the staging directory. An exit code; not 0: a line was printed. */
int recover_publish(const struct recover_request *request);

#endif
