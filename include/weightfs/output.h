/* SPDX-License-Identifier: MIT */
/*
 * What a caller says of an output file and learns about it: which file it may replace, and what was
 * published.
 */
#ifndef WFS_OUTPUT_H
#define WFS_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include <weightfs/error.h>

struct stat;

/* What a file was when last looked at: another one at the same path, or a change, differs in one of
 * these. */
struct wfs_identity {
    uint64_t device, inode, n_bytes;
    int64_t mtime_ns; /* since the epoch */
};

enum { WFS_OUTPUT_NAME_MAX = 256 };

enum wfs_replace {
    WFS_REPLACE_NONE,  /* nothing may be at the path: -EEXIST */
    WFS_REPLACE_KNOWN, /* what is there must be `known`: -EBUSY otherwise */
    WFS_REPLACE_ANY,
};

struct wfs_save_options {
    enum wfs_replace replace;
    struct wfs_identity known;
    uint32_t mode; /* permission bits of a new file; a replaced file's own are kept */
    /* Called now and then while bytes are written; not 0 gives up with that negative errno. NULL:
     * none. */
    int (*progress)(void *ctx, uint64_t n_done, uint64_t n_total);
    /* Called when a file is complete and durable under its temporary name, before it is renamed;
     * not 0 gives up. digest is wfs_catalog_digest of what was read back. NULL: none. */
    int (*complete)(void *ctx, const struct wfs_identity *identity, uint64_t digest,
                    struct wfs_error *err);
    void *ctx;
};

struct wfs_save_report {
    struct wfs_identity published; /* zeros while nothing is */
    const char *step;              /* the step that failed or "done"; static text */
    bool is_durable;               /* the directory was synced too */
};

#pragma GCC visibility push(default)

/* Identity of an open file or a path, from its stat. */
struct wfs_identity wfs_identity_of(const struct stat *st);
bool wfs_identity_is_equal(const struct wfs_identity *a, const struct wfs_identity *b);

/* Name, beside the output at path, of the file that is written before it is renamed. */
void wfs_output_temporary(const char *path, char name[WFS_OUTPUT_NAME_MAX]);

#pragma GCC visibility pop

#endif
