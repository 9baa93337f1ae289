/* SPDX-License-Identifier: MIT */
/*
 * A zip archive in a range of a source, read by its central directory alone: local headers only
 * confirm where the data of an entry begins. Names are bytes to look up, never paths.
 */
#ifndef WFS_ZIP_H
#define WFS_ZIP_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/source.h"
#include "base/limits.h"

enum { ZIP_STORED = 0, ZIP_DEFLATED = 8 };
enum { ZIP_HEADER_WINDOW = 8192 };

struct zip_entry {
    const char *name; /* ended by NUL; may hold others */
    uint32_t n_name;
    uint32_t crc;
    uint64_t header; /* of the local one, from the start of the archive */
    uint64_t n_packed, n_bytes;
    uint64_t data; /* offset in the source; 0: the local header has not been looked at */
    uint16_t method;
    uint16_t flags;
    uint8_t tag;     /* for whoever uses entries; 0 at first */
    bool is_derived; /* the same: data is an offset in a source made of this one */
};

struct zip {
    const struct source *source;
    uint64_t start;      /* of the archive in the source */
    uint64_t directory;  /* offset in the archive */
    uint64_t n_trailing; /* bytes behind the end record */
    struct arena arena;
    struct zip_entry *entries; /* by position of their local headers */
    uint32_t n_entries;
    struct map names;                  /* of entries, by name in lower case */
    uint32_t next;                     /* behind the entry found last: most often wanted next */
    uint8_t window[ZIP_HEADER_WINDOW]; /* where the last local header was */
    uint64_t window_offset;
    size_t n_window;
};

/*
 * Reads the directory. -EBADMSG for what contradicts itself (overlaps, names that stand twice,
 * counts and places that do not fit), -EOPNOTSUPP for archives of several disks, -E2BIG, -EIO,
 * -ENOMEM. zip_close is needed in any case.
 */
int zip_open(struct zip *zip, const struct source *source, uint64_t start, uint64_t n_bytes,
             const struct limits *limits, struct wfs_error *err);
void zip_close(struct zip *zip);

/* Exact; NULL when there is none. */
struct zip_entry *zip_find(struct zip *zip, const char *name, size_t n_name);

/*
 * Finds the first byte of an entry's data: its local header must be there, carry the same name and
 * method, and leave room before the next one. -EBADMSG; -EOPNOTSUPP when the entry is encrypted or
 * packed by a method other than deflate.
 */
int zip_locate(struct zip *zip, struct zip_entry *entry, struct wfs_error *err);

#endif
