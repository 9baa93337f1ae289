/* SPDX-License-Identifier: MIT */
/*
 * How far the disk has come with a file that is written from its beginning to its end. It is made
 * to keep up: a sync at the end, and the removal of a file that is given up, wait for what the disk
 * has not written yet, and neither can be interrupted.
 */
#ifndef WFS_WRITEBACK_H
#define WFS_WRITEBACK_H

#include <stdint.h>

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
