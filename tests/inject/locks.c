/* SPDX-License-Identifier: MIT */
/*
 * A library to preload: file locks as another filesystem has them, which LOCKS names.
 *
 *   nfs   only what is open for writing can be locked exclusively
 *   smb   what is locked exclusively can be read by the descriptor that has the lock and by no
 * other none  there are none
 *
 * REPLACE is a path: when that file is read by what cannot write it, another program puts one of 3
 * bytes in its place.
 */
#undef _FILE_OFFSET_BITS
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N_FDS = 1024 };

static bool is_locked[N_FDS]; /* exclusively, by descriptor, when it was locked last */

static bool is_filesystem(const char *name)
{
    const char *locks = getenv("LOCKS");
    return locks != NULL && strcmp(locks, name) == 0;
}

/* Another descriptor has locked the file. */
static bool is_shut(int fd)
{
    struct stat own, other;
    if (!is_filesystem("smb") || fstat(fd, &own) < 0)
        return false;
    for (int i = 0; i < N_FDS; i++) {
        if (i != fd && is_locked[i] && fstat(i, &other) == 0 && own.st_ino == other.st_ino)
            return true;
    }
    return false;
}

static void replace(int fd)
{
    static atomic_bool is_done;
    const char *path = getenv("REPLACE");
    struct stat own, named;
    if (path == NULL || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY || fstat(fd, &own) < 0 ||
        stat(path, &named) < 0 || own.st_ino != named.st_ino || atomic_exchange(&is_done, true))
        return;
    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    (void)!write(fd, "abc", 3);
    close(fd);
}

#pragma GCC visibility push(default)

int flock(int fd, int operation)
{
    const bool is_exclusive = (operation & LOCK_EX) != 0;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) /* the kernel does that without a server */
        return (int)syscall(SYS_flock, fd, operation);
    if (is_filesystem("none")) {
        errno = ENOLCK;
        return -1;
    }
    if (is_filesystem("nfs") && is_exclusive && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
        errno = EBADF;
        return -1;
    }
    const int status = (int)syscall(SYS_flock, fd, operation);
    if (status == 0 && fd < N_FDS && (operation & LOCK_SH) == 0) /* as well as an exclusive one */
        is_locked[fd] = is_exclusive;
    return status;
}

ssize_t pread64(int fd, void *buf, size_t n_bytes, off64_t offset)
{
    replace(fd);
    if (!is_shut(fd))
        return syscall(SYS_pread64, fd, buf, n_bytes, offset);
    errno = EACCES;
    return -1;
}

ssize_t pread(int fd, void *buf, size_t n_bytes, off_t offset)
{
    return pread64(fd, buf, n_bytes, offset);
}

#pragma GCC visibility pop
