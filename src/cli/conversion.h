/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint written as a new file or set: what verbs share that make one checkpoint of another.
 */
#ifndef WFS_CONVERSION_H
#define WFS_CONVERSION_H

#include "cli/args.h"

#include <weightfs/output.h>

struct conversion_request {
    const struct args *args; /* with the settings of a source and an output, and options of views */
    const char *source, *target;
    /*
     * Makes a catalog of the loaded one, which outlives it, or prints a line. NULL: the loaded one
     * is written.
     */
    enum exit_code (*change)(void *ctx, const struct wfs_catalog *loaded, struct wfs_catalog **out);
    void *ctx;
    const struct wfs_catalog
        *file; /* what else it makes that of; NULL: nothing that is known yet */
    const struct wfs_access
        *access; /* of what else it makes that of, read afterwards; NULL: none */
};

/* Loads, changes and saves; prints what is left out, or a line about what went wrong. */
enum exit_code conversion_run(const struct conversion_request *request);

#endif
