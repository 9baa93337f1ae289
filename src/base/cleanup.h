/* SPDX-License-Identifier: MIT */
/*
 * Cleanup attributes: the one idiom for freeing on early return. A pointer that is handed on goes
 * through steal on the success path.
 */
#ifndef WFS_CLEANUP_H
#define WFS_CLEANUP_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define cleanup(function) __attribute__((cleanup(function)))
#define warn_unused __attribute__((warn_unused_result))

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

/* The pointer, leaving NULL. */
#define steal(pointer)                                                                             \
    __extension__({                                                                                \
        __typeof__(*(pointer)) stolen_ = *(pointer);                                               \
        *(pointer) = NULL;                                                                         \
        stolen_;                                                                                   \
    })

static inline int steal_fd(int *fd)
{
    const int stolen = *fd;
    *fd = -1;
    return stolen;
}

#endif
