/* SPDX-License-Identifier: MIT */
/*
 * What plain descriptors lack: whole transfers, and what their filesystem can do.
 */
#ifndef WFS_IO_H
#define WFS_IO_H

#include <stdbool.h>
#include <stddef.h>

/* Of what filesystems share between files, and read and write at once: bytes. */
enum { IO_BLOCK = 4096 };

/* Can files share blocks on the filesystem that this one is on? */
bool io_shares_blocks(int fd);

/* write(2) until all is written: 0 or a negative errno. */
int io_write(int fd, const void *bytes, size_t n_bytes);

/*
 * fsync of a directory, which says so when its filesystem has been shut down: the fsync of XFS does
 * not. 0, or -1 and errno.
 */
int io_sync_directory(int fd);

#endif
