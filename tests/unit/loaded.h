/* SPDX-License-Identifier: MIT */
/*
 * For tests of loaders: files made of a header and numbered data, loaded from memory, and what the
 * loader found.
 */
#ifndef WFS_LOADED_H
#define WFS_LOADED_H

#include "check.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "format/registry.h"

struct file {
    char *bytes;
    size_t n_bytes;
};

struct loaded {
    struct wfs_catalog *catalog;
    struct wfs_error err;
    int code;
};

static inline struct file file_of(const char *header, size_t n_data)
{
    const size_t n_header = strlen(header);
    struct file file = {calloc(1, 8 + n_header + n_data), 8 + n_header + n_data};
    if (file.bytes == NULL)
        abort();
    store_le64(file.bytes, n_header);
    memcpy(file.bytes + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++)
        file.bytes[8 + n_header + i] = (char)(i + 1);
    return file;
}

static inline struct load_context default_context(void)
{
    struct load_context context = {0};
    limits_init(&context.limits);
    return context;
}

static inline struct loaded load_named(const char *name, const char *bytes, size_t n_bytes,
                                       const struct load_context *context)
{
    struct loaded loaded = {0};
    struct source *source;
    if (source_new_memory(name, bytes, n_bytes, &source) < 0)
        abort();
    loaded.code = load_source(source, context, &loaded.catalog, &loaded.err);
    check(loaded.code == -loaded.err.code);
    check((loaded.code == 0) == (loaded.catalog != NULL));
    return loaded;
}

static inline struct loaded load(struct file file, const struct load_context *context)
{
    return load_named("x.safetensors", file.bytes, file.n_bytes, context);
}

static inline void done(struct file *file, struct loaded *loaded)
{
    wfs_catalog_free(loaded->catalog);
    free(file->bytes);
}

/* The finding that begins with the text, or NULL. */
static inline const struct wfs_finding *find(const struct wfs_catalog *catalog, const char *text)
{
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++) {
        const struct wfs_finding *finding = wfs_catalog_finding(catalog, i);
        if (strncmp(finding->text, text, strlen(text)) == 0)
            return finding;
    }
    return NULL;
}

static inline void check_finding(const struct loaded *loaded, enum wfs_severity severity,
                                 const char *text)
{
    const struct wfs_finding *finding =
        loaded->catalog != NULL ? find(loaded->catalog, text) : NULL;
    if (!check(finding != NULL))
        printf("# no finding \"%s\"\n", text);
    else
        check_int(finding->severity, severity);
}

#define A_TO_4 "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
#define FROM_4 "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}"
#define EMPTY(at) "{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[" #at "," #at "]}"

#endif
