/* SPDX-License-Identifier: MIT */
/*
 * A file with the cache files of many objects: an unnamed one for the time of a process, or one
 * that is kept in a directory, where later mounts find the objects, and mounts at the same time
 * share them. Shared by library and programs, not installed.
 *
 *     0        a line that names the format
 *     entries  64 bytes for each object: seed, n_bytes, base, when it was opened last (ms), a hash
 *              of its URL, zeros, and a hash of all that; anything else is a free entry
 *     texts    4096 bytes for each object: what may be shown of its URL
 *     objects  see cachefile.h
 *
 * Whoever changes entries holds a lock. Nothing that a process leaves when it is killed can do
 * harm, because each piece of an object has a sum of its own.
 */
#ifndef WFS_CACHESTORE_H
#define WFS_CACHESTORE_H

#include <weightfs/cachefile.h>
#include <weightfs/error.h>

enum { CACHESTORE_ENTRIES = 4096, CACHESTORE_TEXT = 4096 };

/* Makes the file, which is empty, a store. A negative errno. */
int cachestore_make(int fd);

/*
 * Opens the store in a directory: once for writing, and where ret_read is not NULL once for
 * reading. With `creates`, directory and store are made where they are missing. Directory and file
 * must be this user's, and nobody else's to write; a file that is not a store is replaced.
 * A negative errno; err gets a sentence.
 */
int cachestore_open(const char *directory, bool creates, int *ret_fd, int *ret_read,
                    struct wfs_error *err);

/* Removes the file from the directory; who has it open goes on with it. 0, also when there is
 * none, or a negative errno. */
int cachestore_remove(const char *directory, struct wfs_error *err);

/*
 * Finds the object in the store, or makes room for it, and removes what other versions of the same
 * URL have left. Where the file cannot be longer, one as large or larger that was opened longest
 * ago goes. -EBUSY when another process does not let go of the lock, -EFBIG where that is not
 * enough, or what the system returned.
 */
int cachestore_place(int fd, const char *url, uint64_t digest, uint64_t n_bytes, uint64_t now,
                     struct cachefile *ret);

/* Removes the blocks that were used longest ago until the file has at most about n_bytes on the
 * disk. A negative errno. */
int cachestore_trim(int fd, uint64_t n_bytes);

/* Reads entry i: 1, 0 when it is free, or a negative errno. text gets the URL. */
int cachestore_entry(int fd, unsigned i, struct cachefile *ret, uint64_t *ret_opened,
                     char text[CACHESTORE_TEXT]);

#endif
