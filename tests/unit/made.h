/* SPDX-License-Identifier: MIT */
/*
 * For tests of writers: a catalog over one piece of memory, made tensor by tensor.
 */
#ifndef WFS_MADE_H
#define WFS_MADE_H

#include <stdlib.h>

#include <weightfs/format.h>

#include "catalog/catalog.h"

static inline struct wfs_catalog *made_catalog(const void *bytes, size_t n_bytes)
{
    struct wfs_catalog *catalog;
    struct source *source;
    if (catalog_new(&catalog) < 0 || source_new_memory("memory", bytes, n_bytes, &source) < 0 ||
        catalog_adopt_source(catalog, source) < 0)
        abort();
    catalog->format = wfs_format_by_name("safetensors");
    return catalog;
}

/* No bytes when the shape has more than can be counted. */
static inline struct wfs_tensor *made_tensor(struct wfs_catalog *catalog, const char *key,
                                             enum wfs_dtype dtype, uint32_t rank,
                                             const uint64_t *dims, uint64_t offset)
{
    struct wfs_tensor *tensor = catalog_add(catalog);
    if (tensor == NULL)
        abort();
    *tensor = (struct wfs_tensor){
        .key = key,
        .dtype = (uint8_t)dtype,
        .shape = {rank, dims},
        .stored = {.source = catalog->sources.list[0], .offset = offset, .dtype = (uint8_t)dtype},
    };
    if (wfs_shape_bytes(&tensor->shape, dtype, &tensor->n_bytes) < 0)
        tensor->n_bytes = 0;
    return tensor;
}

#endif
