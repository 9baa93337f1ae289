/* SPDX-License-Identifier: MIT */
/*
 * A library to preload: allocation number MEMORY_AT, from 0, and the MEMORY_MORE that follow it
 * fail. At the end the number of all is appended to MEMORY_FILE. It calls what glibc exports for
 * this: dlsym allocates.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

static atomic_ulong n_calls;

static int fails(void)
{
    const char *at = getenv("MEMORY_AT"), *more = getenv("MEMORY_MORE");
    const unsigned long i = atomic_fetch_add(&n_calls, 1);
    const unsigned long first = at == NULL ? ~0UL : strtoul(at, NULL, 10);
    const unsigned long n_more = more == NULL ? 0 : strtoul(more, NULL, 10);
    if (i < first || i - first > n_more)
        return 0;
    errno = ENOMEM;
    return 1;
}

static void count(void) __attribute__((destructor));

static void count(void)
{
    const char *path = getenv("MEMORY_FILE");
    const int fd = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0) {
        dprintf(fd, "%lu\n", atomic_load(&n_calls));
        close(fd);
    }
}

#pragma GCC visibility push(default)

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t n)
{
    return fails() ? NULL : __libc_realloc(old, n);
}

void *reallocarray(void *old, size_t n, size_t size)
{
    size_t n_bytes;
    return __builtin_mul_overflow(n, size, &n_bytes) ? NULL : realloc(old, n_bytes);
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return fails() ? NULL : __libc_memalign(alignment, n);
}

#pragma GCC visibility pop
