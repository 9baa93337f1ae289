/* SPDX-License-Identifier: MIT */
/*
 * Members of a ustar archive, by name. Names are looked up, never used as paths.
 */
#ifndef WFS_TAR_H
#define WFS_TAR_H

#include "base/source.h"

enum { TAR_BLOCK = 512 };

struct tar_member {
    uint64_t offset, n_bytes;
    unsigned n_same; /* members with that name */
};

/* Returns whether a file begins like an archive. */
bool tar_probe(const uint8_t *head, size_t n_head);

/*
 * Finds a regular member ("./" before its name is ignored); the last one of several. -ENOENT when
 * there is none; -EBADMSG when the archive is damaged, errors as source_read.
 */
int tar_find(const struct source *source, const char *name, struct tar_member *ret,
             struct wfs_error *err);

#endif
