/* SPDX-License-Identifier: MIT */
/*
 * A checkup: damage and oddities of a checkpoint, one line for each.
 */
#ifndef WFS_CHECKUP_H
#define WFS_CHECKUP_H

#include <weightfs/catalog.h>
#include <weightfs/json_out.h>
#include <weightfs/workload.h>

struct checkup {
    /* Given. */
    const struct wfs_catalog *catalog; /* for which wfs_verify was called */
    bool has_values;                   /* look at all elements, too */
    bool allows_large;                 /* of views that are much larger than the files, too */
    /* Gets each line, which is safe for a terminal. */
    void (*visit)(void *ctx, const struct wfs_finding *finding);
    /* Called when elements of a tensor were looked at; n_bytes of it. Not 0: the end. */
    int (*step)(void *ctx, uint64_t n_bytes);
    void *ctx;

    /* Made. */
    enum wfs_severity worst;
    uint64_t n_looked_at;    /* tensors whose elements are numbers */
    uint64_t n_elems;        /* of these */
    const char *failed_path; /* of a file that cannot be read; NULL: the checkpoint */
};

/*
 * Reports all findings. -EFBIG: there is too much to look at; -EIO for a tensor that cannot be
 * read, or a file that has changed; or what step returned.
 */
int checkup_run(struct checkup *checkup, struct wfs_error *err);

/* Adds members about what was looked at, if values were. */
void checkup_put(const struct checkup *checkup, struct json_out *out);

#endif
