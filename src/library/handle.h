/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint as a caller of the library holds it. The room is the interface of weightfs.h: it
 * turns a caller's words into those of the rooms below, and what these know into texts. It knows no
 * format, and prints nothing.
 */
#ifndef WFS_HANDLE_H
#define WFS_HANDLE_H

#include "catalog/catalog.h"
#include "library/call.h"

#include <pthread.h>

/* What is made when it is first asked for. */
struct handle_index {
    pthread_mutex_t lock;
    struct catalog_keys keys;
    bool has_keys;
    char *names; /* a NUL after each; NULL: not made yet */
    size_t n_names;
    pthread_mutex_t checking; /* of the findings, to which checksums that are wrong are added */
    bool is_verified;
};

struct wfs_checkpoint {
    struct wfs_catalog *catalog;
    char *source; /* as shown; NULL: it was made, not opened */
    struct handle_index *index;
};

/*
 * Opens a source with the settings and the view of a call, and gives its notices. report: gets the
 * report of the view, which borrows from the checkpoint, and may exist beside a failure; NULL:
 * nobody asks for it.
 */
int handle_open(const char *source, struct call *call, struct wfs_checkpoint **out,
                struct wfs_report **report, struct wfs_error *err);

#endif
