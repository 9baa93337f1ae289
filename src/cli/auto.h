/* SPDX-License-Identifier: MIT */
/*
 * Cleanup on early return, for what verbs hold.
 */
#ifndef WFS_AUTO_H
#define WFS_AUTO_H

#include <weightfs/format.h>
#include <weightfs/view.h>

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

static inline void auto_free_view(struct wfs_view **view)
{
    wfs_view_free(*view);
}

static inline void auto_free_report(struct wfs_report **report)
{
    wfs_report_free(*report);
}

#define autofree __attribute__((cleanup(auto_free_pointer)))
#define auto_catalog __attribute__((cleanup(auto_free_catalog)))
#define auto_layout __attribute__((cleanup(auto_free_layout)))
#define auto_view __attribute__((cleanup(auto_free_view)))
#define auto_report __attribute__((cleanup(auto_free_report)))

#endif
