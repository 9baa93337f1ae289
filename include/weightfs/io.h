/* SPDX-License-Identifier: MIT */
/*
 * What plain descriptors lack: whole transfers, and what their filesystem can do. Shared by library
 * and programs, not installed.
 */
#ifndef WFS_IO_H
#define WFS_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Block size in bytes: the unit in which filesystems share data between files, and read and write
 * at once. */
enum { IO_BLOCK = 4096 };

/* Allocates room that is written across: in large pages where it is large, since fewer pages are
 * fewer misses. free() frees it; NULL: there is none. */
void *io_alloc(size_t n_bytes);

/* Returns whether files can share blocks on the filesystem of the descriptor. */
bool io_shares_blocks(int fd);

/* Returns true for a regular file with no second name: what is written to it shows nowhere else. */
bool io_is_plain_file(int fd);

/* Returns whether closing the descriptor frees so much of the disk that it takes long: that of a
 * large file without a name. */
bool io_frees_much(int fd);
/* Returns true if freeing the blocks of the file may take seconds. */
bool io_has_much(int fd);

/* Closes the descriptor of a file that was removed, in a thread of its own if that takes long. */
void io_close_removed(int fd);

/* Reads until it has n_bytes or the file ends; the position stays. Returns how many, or a
 * negative errno. */
ssize_t io_read_at(int fd, void *buf, size_t n_bytes, uint64_t offset);

/* Writes until all is written; the position stays. Returns 0 or a negative errno, and in any case
 * how much was written. */
int io_write_at(int fd, const void *bytes, size_t n_bytes, uint64_t offset, size_t *ret_n);

/* Writes at the position until all is written; waits for room in a pipe, also in one that does not
 * block. Returns 0 or a negative errno. */
int io_write(int fd, const void *bytes, size_t n_bytes);

/*
 * Syncs a directory and reports that its filesystem has been shut down, which the fsync of XFS does
 * not. Returns 0, or -1 and errno.
 */
int io_sync_directory(int fd);

#endif
