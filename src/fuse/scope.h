/* SPDX-License-Identifier: MIT */
/*
 * Cleanup on early return, for what the driver holds.
 */
#ifndef WFS_SCOPE_H
#define WFS_SCOPE_H

#include <weightfs/format.h>

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static inline void scope_free(void *pointer)
{
    const int saved = errno;
    free(*(void **)pointer);
    errno = saved;
}

static inline void scope_close(const int *fd)
{
    const int saved = errno;
    if (*fd >= 0)
        close(*fd);
    errno = saved;
}

static inline void scope_catalog(struct wfs_catalog **catalog)
{
    wfs_catalog_free(*catalog);
}

#define autofree __attribute__((cleanup(scope_free)))
#define autoclose __attribute__((cleanup(scope_close)))
#define auto_catalog __attribute__((cleanup(scope_catalog)))

#endif
