/* SPDX-License-Identifier: MIT */
/*
 * A library to preload: each read of a file at a place, and each copy between files, takes SLOW_MS
 * milliseconds longer, as on a slow disk, and each write to stderr returns SLOW_STDERR_MS after its
 * text is seen. For tests of what is shown while work takes long.
 */
/* Both spellings of each call are needed. */
#undef _FILE_OFFSET_BITS
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void pause_a_little(const char *variable)
{
    const char *text = getenv(variable);
    const long n = text == NULL ? 0 : strtol(text, NULL, 10);
    const struct timespec pause = {.tv_sec = n / 1000, .tv_nsec = n % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

#pragma GCC visibility push(default)

ssize_t pread64(int fd, void *buf, size_t n_bytes, off64_t offset)
{
    pause_a_little("SLOW_MS");
    return syscall(SYS_pread64, fd, buf, n_bytes, offset);
}

ssize_t pread(int fd, void *buf, size_t n_bytes, off_t offset)
{
    return pread64(fd, buf, n_bytes, offset);
}

ssize_t write(int fd, const void *buf, size_t n_bytes)
{
    const ssize_t n = syscall(SYS_write, fd, buf, n_bytes);
    if (fd == STDERR_FILENO)
        pause_a_little("SLOW_STDERR_MS");
    return n;
}

ssize_t copy_file_range(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t n_bytes,
                        unsigned flags)
{
    pause_a_little("SLOW_MS");
    return syscall(SYS_copy_file_range, in, in_offset, out, out_offset, n_bytes, flags);
}

#pragma GCC visibility pop
