/* SPDX-License-Identifier: MIT */
/*
 * The cache file of an object on the network: a sparse copy, and which pieces of it are present.
 * One process fills it, any number read it. Shared by library and programs, not installed.
 *
 *     base      the object, with holes
 *     records   a record of 16 bytes for each block of 1 MiB (the last may be shorter), from the
 *               next multiple of 4096 on:
 *                 0  8  sequence  odd while the block is being removed, and another one after that
 *                 8  8  pieces    bit i: the piece of 16 KiB with that number is present
 *
 * A bit is set after its piece was written, and a reader looks at the record before and after it
 * reads the piece, so it never takes bytes that were not there, or were removed meanwhile.
 */
#ifndef WFS_CACHEFILE_H
#define WFS_CACHEFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CACHEFILE_PIECE = 16 << 10, CACHEFILE_BLOCK = 1 << 20 };

struct cachefile {
    int fd;           /* borrowed */
    uint64_t base;    /* in the file, which may have others in it; a multiple of 4096 */
    uint64_t n_bytes; /* of the object */
    uint64_t records; /* where they begin */
};

/* -EFBIG: the object is larger than a file can be. */
int cachefile_init(struct cachefile *cache, int fd, uint64_t base, uint64_t n_bytes);

/* Returns where it ends in the file, a multiple of 4096. */
uint64_t cachefile_end(const struct cachefile *cache);

/* Makes the file as long as it must be, with nothing in it. A negative errno. */
int cachefile_make(const struct cachefile *cache);

/* Gives the room on the disk back. */
void cachefile_clear(const struct cachefile *cache);

/* Writes bytes of the object, which are not present before they are marked. A negative errno. */
int cachefile_write(const struct cachefile *cache, uint64_t offset, const void *bytes,
                    size_t n_bytes);

/* Reads the range, which lies in the object: 1, or 0 when not all of it is present, or a negative
 * errno. */
int cachefile_read(const struct cachefile *cache, uint64_t offset, void *buf, size_t n_bytes);

/* Finds the first piece, and all missing ones that follow it, that are not present between *from
 * and *end, and makes both its bounds. 1, 0: there is none; or a negative errno. */
int cachefile_missing(const struct cachefile *cache, uint64_t *from, uint64_t *end);

/* Returns how many bytes are present, as far as that can be read. */
uint64_t cachefile_count(const struct cachefile *cache);

/* Notes as present all pieces that lie whole in the range, which was written. A negative errno. */
int cachefile_mark(const struct cachefile *cache, uint64_t offset, uint64_t n_bytes);

#endif
