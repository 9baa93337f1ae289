/* SPDX-License-Identifier: MIT */
/*
 * Members of a ustar archive, by name. Names are looked up, never used as paths.
 */
#ifndef WFS_TAR_H
#define WFS_TAR_H

#include "base/source.h"

enum { TAR_BLOCK = 512, TAR_NAME_MAX = 101 };

struct tar_member {
    uint64_t offset, n_bytes;
    unsigned n_same; /* members with that name */
};

/* Returns whether a file begins like an archive. */
bool tar_probe(const uint8_t *head, size_t n_head);

typedef void tar_visit(void *ctx, const char *name, uint64_t offset, uint64_t n_bytes);

/* Calls visit for each regular member, "./" before its name left out. -EBADMSG when the archive is
 * damaged, errors as source_read. */
int tar_each(const struct source *source, tar_visit *visit, void *ctx, struct wfs_error *err);

/* Finds one by name; the last one of several. -ENOENT when there is none, or as tar_each. */
int tar_find(const struct source *source, const char *name, struct tar_member *ret,
             struct wfs_error *err);

#endif
