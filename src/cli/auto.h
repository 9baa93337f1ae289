/* SPDX-License-Identifier: MIT */
/*
 * Cleanup on early return, for what verbs hold.
 */
#ifndef WFS_AUTO_H
#define WFS_AUTO_H

#include <weightfs/format.h>

#include <stdlib.h>

static inline void auto_free_pointer(void *pointer)
{
    free(*(void **)pointer);
}

static inline void auto_free_catalog(struct wfs_catalog **catalog)
{
    wfs_catalog_free(*catalog);
}

static inline void auto_free_layout(struct wfs_layout **layout)
{
    wfs_layout_free(*layout);
}

#define autofree __attribute__((cleanup(auto_free_pointer)))
#define auto_catalog __attribute__((cleanup(auto_free_catalog)))
#define auto_layout __attribute__((cleanup(auto_free_layout)))

#endif
