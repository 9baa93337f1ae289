/* SPDX-License-Identifier: MIT */
/*
 * Inside of the catalog, for the modules that fill or rewrite one. Everything that hangs off it
 * lives in its arena.
 */
#ifndef WFS_TENSOR_CATALOG_H
#define WFS_TENSOR_CATALOG_H

#include <weightfs/catalog.h>

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/source.h"
#include "tensor/value.h"

/* A value, or a container of values, that no tensor is in, and its dotted name. */
struct catalog_value {
    const char *name;
    uint32_t id; /* in the graph */
};

struct wfs_catalog {
    struct arena arena;
    struct wfs_tensor *tensors; /* malloc'ed, may move while the catalog is being filled */
    size_t n_tensors, n_room;
    const struct wfs_text *meta;
    struct wfs_text **meta_end;
    bool has_meta; /* a metadata map is there, be it empty */
    struct source **sources;
    size_t n_sources;
    struct wfs_finding *findings;
    size_t n_findings;
    const char *format;
    const char *container;
    struct source *derived;       /* bytes made of those of the sources; NULL: none */
    struct graph graph;           /* what a pickle holds; empty in other formats */
    uint32_t root;                /* of the graph; 0: there is none */
    struct catalog_value *values; /* malloc'ed; the largest parts of the graph without a tensor */
    size_t n_values, n_value_room;
    struct wfs_catalog **parts; /* malloc'ed; owned: what the tensors were loaded as, shards */
    size_t n_parts;
    /* For each tensor below, the arena owns keys, dims, strides and texts. */
};

int catalog_new(struct wfs_catalog **out);

static inline void cleanup_catalog(struct wfs_catalog **catalog)
{
    wfs_catalog_free(*catalog);
}

#define auto_catalog cleanup(cleanup_catalog)

/* Makes room for n tensors in all. -ENOMEM. */
int catalog_reserve(struct wfs_catalog *catalog, size_t n);

/* Room for one more tensor, zeroed and counted; NULL when out of memory. Pointers from before may
 * be stale. */
struct wfs_tensor *catalog_add(struct wfs_catalog *catalog);

/* The source is freed with the catalog, also when this fails with -ENOMEM. */
int catalog_adopt_source(struct wfs_catalog *catalog, struct source *source);

/* name lives in the arena. -ENOMEM. */
int catalog_add_value(struct wfs_catalog *catalog, const char *name, uint32_t id);

/* Both texts are copied; the second function takes a value that may have NULs in it. -ENOMEM. */
int catalog_add_meta(struct wfs_catalog *catalog, const char *name, const char *value);
int catalog_add_meta_bytes(struct wfs_catalog *catalog, const char *name, const char *value,
                           size_t n_bytes);
int catalog_add_finding(struct wfs_catalog *catalog, enum wfs_severity severity, const char *format,
                        ...) __attribute__((format(printf, 3, 4)));

/* Puts a text before the tensor's others. -ENOMEM. */
int catalog_add_attr(struct wfs_catalog *catalog, struct wfs_tensor *tensor, const char *name,
                     const char *value);

/* Row-major strides of the shape in the arena, for rules that permute. NULL when out of memory or
 * rank 0. */
uint64_t *catalog_dense_strides(struct wfs_catalog *catalog, const struct wfs_shape *shape);

#endif
