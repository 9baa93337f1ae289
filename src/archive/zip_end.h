/* SPDX-License-Identifier: MIT */
/*
 * The end record of a zip: where its directory is.
 */
#ifndef WFS_ZIP_END_H
#define WFS_ZIP_END_H

#include "base/source.h"

struct zip_end {
    uint64_t n_entries;
    uint64_t n_directory; /* bytes */
    uint64_t directory;   /* offset in the archive */
    uint64_t limit;       /* where the directory must end at the latest */
    uint64_t n_trailing;  /* bytes after the end record */
    uint64_t n_between;   /* bytes between the directory and the end record that are neither */
};

/*
 * Finds the last valid end record: its directory is before it and large enough for its entries.
 * -EBADMSG, -EOPNOTSUPP, -EIO, -ENOMEM.
 */
int zip_end_find(const struct source *source, uint64_t start, uint64_t n_bytes, struct zip_end *end,
                 struct wfs_error *err);

#endif
