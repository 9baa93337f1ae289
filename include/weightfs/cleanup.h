/* SPDX-License-Identifier: MIT */
/*
 * Cleanup attributes: the one idiom for freeing on early return. A pointer or descriptor that is
 * handed on goes through steal or steal_fd on the success path. Shared by library and programs, not
 * installed.
 */
#ifndef WFS_CLEANUP_H
#define WFS_CLEANUP_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Calls function with the address of the variable when its scope ends. */
#define cleanup(function) __attribute__((__cleanup__(function), __unused__))
#define warn_unused __attribute__((__warn_unused_result__))

static inline void cleanup_free(void *pointer)
{
    const int saved = errno;
    free(*(void **)pointer);
    errno = saved;
}

static inline void cleanup_close(const int *fd)
{
    const int saved = errno;
    if (*fd >= 0)
        close(*fd);
    errno = saved;
}

#define autofree cleanup(cleanup_free)
#define autoclose cleanup(cleanup_close)

/* Returns the pointer and leaves NULL. */
#define steal(pointer)                                                                             \
    __extension__({                                                                                \
        __typeof__(*(pointer)) stolen_ = *(pointer);                                               \
        *(pointer) = NULL;                                                                         \
        stolen_;                                                                                   \
    })

/* Returns the descriptor and leaves -1. */
static inline int steal_fd(int *fd)
{
    const int stolen = *fd;
    *fd = -1;
    return stolen;
}

#endif
