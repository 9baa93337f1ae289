/* SPDX-License-Identifier: MIT */
/*
 * An interrupted or partial transfer goes on; a write that writes nothing is an error.
 */

#include <weightfs/io.h>

#include <errno.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

void *io_alloc(size_t n_bytes)
{
    enum { HUGE_PAGE = 2 << 20 };
    if (n_bytes < HUGE_PAGE)
        return malloc(n_bytes);
    const size_t n_room = (n_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *bytes = aligned_alloc(HUGE_PAGE, n_room);
    if (bytes != NULL)
        (void)madvise(bytes, n_room, MADV_HUGEPAGE);
    return bytes;
}

bool io_shares_blocks(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 &&
           (fs.f_type == XFS_SUPER_MAGIC || (unsigned long)fs.f_type == BTRFS_SUPER_MAGIC);
}

bool io_is_plain_file(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink <= 1;
}

/* ---- closing ---- */

static bool is_much(const struct stat *st)
{
    enum { N_MUCH = 256 << 20 };
    return st->st_blocks >= N_MUCH / 512;
}

bool io_has_much(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && is_much(&st);
}

bool io_frees_much(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && is_much(&st) && st.st_nlink == 0;
}

static void *close_it(void *ctx)
{
    close((int)(intptr_t)ctx);
    return NULL;
}

void io_close_removed(int fd)
{
    enum { N_STACK = 1 << 16 };
    pthread_attr_t attributes;
    pthread_t thread;
    const int saved = errno;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, N_STACK);
    if (!io_frees_much(fd) ||
        pthread_create(&thread, &attributes, close_it, (void *)(intptr_t)fd) != 0)
        close(fd);
    pthread_attr_destroy(&attributes);
    errno = saved;
}

/* ---- whole transfers ---- */

ssize_t io_read_at(int fd, void *buf, size_t n_bytes, uint64_t offset)
{
    size_t n_read = 0;
    while (n_read < n_bytes) {
        const ssize_t n =
            pread(fd, (char *)buf + n_read, n_bytes - n_read, (off_t)(offset + n_read));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        n_read += (size_t)n;
    }
    return (ssize_t)n_read;
}

int io_write_at(int fd, const void *bytes, size_t n_bytes, uint64_t offset, size_t *ret_n)
{
    *ret_n = 0;
    while (*ret_n < n_bytes) {
        const ssize_t n =
            pwrite(fd, (const char *)bytes + *ret_n, n_bytes - *ret_n, (off_t)(offset + *ret_n));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        *ret_n += (size_t)n;
    }
    return 0;
}

int io_write(int fd, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    while (n_bytes > 0) {
        const ssize_t n = write(fd, at, n_bytes);
        if (n < 0 && (errno == EINTR || (errno == EAGAIN && poll(&room, 1, -1) != 0)))
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
