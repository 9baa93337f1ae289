/* SPDX-License-Identifier: MIT */
/*
 * An interrupted or partial write goes on; one that writes nothing is an error.
 */
#include "base/io.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

bool io_shares_blocks(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 &&
           (fs.f_type == XFS_SUPER_MAGIC || (unsigned long)fs.f_type == BTRFS_SUPER_MAGIC);
}

int io_write(int fd, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    while (n_bytes > 0) {
        const ssize_t n = write(fd, at, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

int io_sync_directory(int fd)
{
    struct stat st;
    return fsync(fd) < 0 || fstat(fd, &st) < 0 ? -1 : 0;
}
