/* SPDX-License-Identifier: MIT */
/*
 * The cache file of an object on the network: a sparse copy, and which pieces of it are present.
 * One process fills it, any number read it. Shared by library and programs, not installed.
 *
 *     base      the object, with holes
 *     sums      8 bytes for each piece of 4 KiB, from the next multiple of 4096 on: 0 when it is
 *               not present, else a hash of its bytes that nobody but this object has
 *     times     8 bytes for each block of 1 MiB: when it was used last, in ms since the epoch
 *
 * A sum is written after its piece, and whoever reads a piece compares them: bytes that are not
 * there yet, were removed, belong to another object or were damaged on the disk are not present.
 */
#ifndef WFS_CACHEFILE_H
#define WFS_CACHEFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CACHEFILE_PIECE = 4 << 10, CACHEFILE_BLOCK = 1 << 20 };

struct cachefile {
    int fd;               /* borrowed */
    uint64_t base;        /* in the file, which may have others in it; a multiple of 4096 */
    uint64_t n_bytes;     /* of the object */
    uint64_t seed;        /* of the hashes */
    uint64_t sums, times; /* where they begin */
};

/* Returns a hash of a text that lasts. The seed of an object is that of its whole URL, seeded with
 * that of its validator. */
uint64_t cachefile_hash(const char *text, uint64_t seed);

/* -EFBIG: the object is larger than a file can be. */
int cachefile_init(struct cachefile *cache, int fd, uint64_t base, uint64_t n_bytes, uint64_t seed);

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

/* Returns how many bytes of the pieces between from and end are present, as far as that can be
 * read. */
uint64_t cachefile_present(const struct cachefile *cache, uint64_t from, uint64_t end);

/* The same of the whole object. */
uint64_t cachefile_count(const struct cachefile *cache);

/* Removes the pieces of the range that are present and not what their sum says. Returns their
 * number, or a negative errno. */
int64_t cachefile_verify(const struct cachefile *cache, uint64_t offset, uint64_t n_bytes);

/* Notes that the blocks of the range are used. */
void cachefile_use(const struct cachefile *cache, uint64_t offset, uint64_t n_bytes, uint64_t now);

/* Reads when blocks were used, at most n_room, from the first one on that is *block or behind it
 * and may have been used; 0: not since it was removed. Returns how many, 0: none is left, or a
 * negative errno. */
ssize_t cachefile_times(const struct cachefile *cache, uint64_t *block, size_t n_room,
                        uint64_t *ret);

/* Removes a block and gives its room on the disk back. A negative errno. */
int cachefile_remove(const struct cachefile *cache, uint64_t block);

/* Notes as present all pieces that lie whole in the range, which was written. Its last n_tail bytes
 * are in memory, the others are read. A negative errno. */
int cachefile_mark(const struct cachefile *cache, uint64_t offset, uint64_t n_bytes,
                   const uint8_t *tail, size_t n_tail);

#endif
