/* SPDX-License-Identifier: MIT */
/*
 * What was written to a file: ranges with their hashes, to find out later whether the file has
 * these bytes. Ranges that the kernel copied are not among them.
 */
#ifndef WFS_WRITTEN_H
#define WFS_WRITTEN_H

#include <stddef.h>
#include <stdint.h>

struct hasher;
struct wfs_io;

struct written_range {
    uint64_t offset, n_bytes, digest;
    int code; /* of writing it, then of its check */
};

/* A zeroed struct has no ranges. */
struct written {
    struct written_range *ranges; /* malloc'ed, in order; the last one may still grow */
    size_t n_ranges, n_room;
    struct hasher *hasher; /* of the last range; NULL: it is complete */
};

/* Adds bytes that follow all others. -ENOMEM. */
int written_add(struct written *written, uint64_t offset, const void *bytes, size_t n_bytes);

/* Adds ranges that follow all others. -ENOMEM. */
int written_add_ranges(struct written *written, const struct written_range *ranges, size_t n);

/*
 * Reads the next ranges of the file, from *next on, which starts at 0; a team of io shares them. 1:
 * they have these bytes, 0: there is no other range, -EILSEQ: one has others (*ret is the first
 * such range), -EIO, -ENOMEM.
 */
int written_check(const struct wfs_io *io, struct written *written, int fd, size_t *next,
                  struct written_range *ret);

void written_done(struct written *written);

/*
 * How far the disk has come with a file that is written from its beginning to its end. It is made
 * to keep up: a sync at the end, and the removal of a file that is given up, wait for what the disk
 * has not written yet, and neither can be interrupted.
 */

/* All zeros: nothing is written yet. */
struct writeback {
    uint64_t n_started; /* bytes whose writing to the disk was started */
    uint64_t n_settled; /* bytes that the disk has written */
};

/*
 * Starts the writing of what was added to the file, whose first n_bytes are final, and waits where
 * the disk is far behind. Returns 0, or what the disk reported: a later fsync does not report it
 * again.
 */
int writeback_advance(struct writeback *writeback, int fd, uint64_t n_bytes);

#endif
