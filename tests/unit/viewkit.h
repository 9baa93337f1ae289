/* SPDX-License-Identifier: MIT */
/*
 * Catalogs made of keys, and views made of option texts, for the tests of views.
 */
#ifndef WFS_VIEWKIT_H
#define WFS_VIEWKIT_H

#include "check.h"

#include <stdarg.h>
#include <stdlib.h>

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/view.h>

#include "catalog/catalog.h"

static inline void add_tensor(struct wfs_catalog *catalog, const char *key, enum wfs_dtype dtype,
                              uint32_t rank, const uint64_t *dims)
{
    struct wfs_tensor *tensor = catalog_add(catalog);
    uint64_t *copy = arena_calloc(&catalog->arena, rank + 1, sizeof(*copy));
    for (uint32_t i = 0; i < rank; i++)
        copy[i] = dims[i];
    tensor->key = arena_copy(&catalog->arena, key, strlen(key));
    tensor->dtype = tensor->stored.dtype = (uint8_t)dtype;
    tensor->shape = (struct wfs_shape){rank, copy};
    tensor->stored.offset = 1000 * catalog->n_tensors;
    check_int(wfs_shape_bytes(&tensor->shape, dtype, &tensor->n_bytes), 0);
}

/* Keys with spaces between them, each a F32 vector of 6. */
static inline struct wfs_catalog *catalog_of(const char *format, const char *keys)
{
    struct wfs_catalog *catalog = NULL;
    const uint64_t dim = 6;
    check_int(catalog_new(&catalog), 0);
    catalog->format = wfs_format_by_name(format);
    autofree char *copy = strdup(keys);
    char *rest = copy;
    for (const char *key; (key = strsep(&rest, " ")) != NULL;)
        add_tensor(catalog, key, WFS_F32, 1, &dim);
    return catalog;
}

static inline char *keys_of(const struct wfs_catalog *catalog)
{
    char *text = calloc(1, 65536);
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        strcat(text, i > 0 ? " " : "");
        strcat(text, catalog->tensors[i].key);
    }
    return text;
}

static inline struct wfs_view *view_of(const char *const *options, struct wfs_error *err)
{
    struct wfs_view *view = NULL;
    check_int(wfs_view_new(&view), 0);
    for (; *options != NULL; options++) {
        if (wfs_view_add(view, *options, err) != 1) {
            wfs_view_free(view);
            return NULL;
        }
    }
    return view;
}

static inline int give_like(void *ctx, const char *path, struct wfs_catalog **out,
                            struct wfs_error *err)
{
    *out = ctx;
    return 0;
}

/* Applies; 0 or the error. like is taken over; NULL: none. */
static inline int apply(struct wfs_catalog *catalog, struct wfs_catalog *like,
                        const char *const *options, struct wfs_report **report,
                        struct wfs_error *err)
{
    struct wfs_view *view = view_of(options, err);
    const struct wfs_view_loader loader = {give_like, like};
    if (view == NULL)
        return -EINVAL;
    if (like != NULL)
        check_int(wfs_view_add(view, "like=model", err), 1);
    const int code = wfs_view_apply(view, catalog, &loader, report, err);
    wfs_view_free(view);
    return code;
}

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
