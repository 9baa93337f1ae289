/* SPDX-License-Identifier: MIT */
/*
 * The archive room: it knows records of zips and tars, and how to inflate them; what they are for,
 * it leaves to the formats.
 *
 * This header reads a zip in a range of a source by its central directory alone: local headers only
 * confirm where the data of an entry begins. Names are bytes to look up, never paths.
 */
#ifndef WFS_ZIP_H
#define WFS_ZIP_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/source.h"

enum { ZIP_STORED = 0, ZIP_DEFLATED = 8 };
enum { ZIP_HEADER_WINDOW = 8192 };

struct zip_entry {
    const char *name; /* ended by NUL; may hold others */
    uint32_t n_name;
    uint32_t crc;
    uint64_t header; /* of the local one, from the start of the archive */
    uint64_t n_packed, n_bytes;
    uint64_t data; /* offset in the source; 0: not located yet */
    uint16_t method;
    uint16_t flags;
    uint8_t tag;        /* for the user of entries; 0 at first */
    bool has_other_crc; /* in its local header; known when it is located */
    bool is_derived;    /* for the user of entries: data is an offset in a derived source */
};

struct zip {
    const struct source *source;
    uint64_t start;      /* of the archive in the source */
    uint64_t directory;  /* offset in the archive */
    uint64_t n_trailing; /* bytes after the end record */
    uint64_t n_between;  /* bytes between the directory and the end record that are neither */
    struct arena arena;
    struct zip_entry *entries; /* by position of their local headers */
    uint32_t n_entries;
    struct map names;                  /* of entries, by name in lower case */
    uint32_t next;                     /* after the entry found last: most often looked up next */
    uint8_t window[ZIP_HEADER_WINDOW]; /* around the last local header */
    uint64_t window_offset;
    size_t n_window;
};

/*
 * Reads the directory. -EBADMSG for contradictions (overlaps, duplicate names, counts and offsets
 * that do not fit), -EOPNOTSUPP for multi-part archives, -E2BIG, -EIO, -ENOMEM. zip_close is needed
 * in any case.
 */
int zip_open(struct zip *zip, const struct source *source, uint64_t start, uint64_t n_bytes,
             const struct limits *limits, struct wfs_error *err);
void zip_close(struct zip *zip);

/* Finds an entry by its exact name; NULL when there is none. */
struct zip_entry *zip_find(struct zip *zip, const char *name, size_t n_name);

/*
 * Finds the first byte of an entry's data: its local header must exist, carry the same name and
 * method, and leave room before the next one. -EBADMSG; -EOPNOTSUPP when the entry is encrypted or
 * uses a method other than deflate.
 */
int zip_locate(struct zip *zip, struct zip_entry *entry, struct wfs_error *err);

/*
 * Returns how many bytes of the archive belong to no entry and to no directory: those of another
 * archive, or of entries that the directory does not name. What is between an entry that is not
 * located yet and the next one counts as its own.
 */
uint64_t zip_count_loose(const struct zip *zip);

/* Reads an entry that zip_locate has found, and compares its size and CRC-32 with the directory.
 * -EBADMSG, -EIO, -ENOMEM. */
int zip_verify(const struct zip *zip, const struct zip_entry *entry, struct wfs_error *err);

#endif
