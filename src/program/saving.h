/* SPDX-License-Identifier: MIT */
/*
 * A saving: a catalog is written where the user asks, as one file or several, whole or not
 * at all. The caller loads what is written, and reports.
 */
#ifndef WFS_SAVING_H
#define WFS_SAVING_H

#include "program/commit.h"
#include "program/destination.h"

struct saving {
    /* Given; borrowed. */
    const char *source;             /* as typed; NULL: none */
    struct destination destination; /* what is given of that */
    bool keeps_format; /* where the source replaces itself under any name; decided later */

    /* Decided. */
    const char *target;    /* the file, or the index of several; what an error is about */
    const char *directory; /* of the set, to be created where it is missing; NULL: none */
    struct commit commit;
    struct wfs_save_options save; /* callbacks are set by the caller */
};

/* Decides where it goes, before the source is read. Results as those of destination.h. */
enum exit_code saving_choose(struct saving *saving, struct wfs_error *err);

/* Checks what can go wrong once the source is known, and file, what else is read; NULL: nothing.
 * Neither may be replaced by the backup. */
enum exit_code saving_check(struct saving *saving, const struct wfs_catalog *read,
                            const struct wfs_catalog *file, struct wfs_error *err);

/* Plans what is written, a catalog that is rewritten, as commit_plan; access is that of all files
 * that it is made of. */
int saving_plan(struct saving *saving, struct wfs_catalog *written, const struct wfs_access *access,
                struct wfs_error *err);

/* Writes it, as commit_save. A directory that is created for a set goes again if that fails. */
int saving_write(struct saving *saving, struct wfs_error *err);

void saving_done(struct saving *saving);

#endif
