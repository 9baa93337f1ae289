/* SPDX-License-Identifier: MIT */
/*
 * What the targets of formats share: loading with one loader, values, and texts for people.
 */
#ifndef WFS_FUZZ_FORMAT_H
#define WFS_FUZZ_FORMAT_H

#include <weightfs/value.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "format/registry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define demand(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* One line of UTF-8 without anything that moves a cursor. */
static inline void check_text(const char *text)
{
    const size_t n_bytes = strlen(text);
    demand(n_bytes > 0 && utf8_valid(text, n_bytes) == n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        demand((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

/* NULL when the bytes are refused, for a reason that damaged files can have. */
static inline struct wfs_catalog *load_for(const struct wfs_format *format, const void *bytes,
                                           size_t n_bytes, bool force,
                                           const struct load_taker *taker)
{
    struct wfs_error err = {0};
    struct load_context context = {.force = force, .taker = taker};
    struct wfs_catalog *catalog;
    struct source *source;
    limits_init(&context.limits);
    demand(catalog_new(&catalog) == 0);
    demand(source_new_memory("input", bytes, n_bytes, &source) == 0);
    demand(catalog_adopt_source(catalog, source) == 0);
    catalog->format = format;
    const int code = format->functions->load(source, &context, catalog, &err);
    demand(code == -err.code);
    if (code == 0)
        return catalog;
    demand(code == -EBADMSG || code == -EOPNOTSUPP || code == -E2BIG || code == -EMEDIUMTYPE);
    check_text(err.text);
    wfs_catalog_free(catalog);
    return NULL;
}

static inline struct wfs_catalog *load_as(const struct wfs_format *format, const void *bytes,
                                          size_t n_bytes, bool force)
{
    return load_for(format, bytes, n_bytes, force, NULL);
}

/* All values can be written as JSON. */
static inline void read_values(const struct wfs_catalog *catalog)
{
    for (size_t i = 0; i < wfs_catalog_n_values(catalog); i++) {
        char *text = NULL;
        size_t n_bytes;
        demand(wfs_catalog_value_text(catalog, i, &text, &n_bytes) == 0);
        demand(utf8_valid(text, n_bytes) == n_bytes);
        free(text);
    }
}

static inline void check_findings(const struct wfs_catalog *catalog)
{
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++)
        check_text(wfs_catalog_finding(catalog, i)->text);
}

/* The file that the catalog makes, malloc'ed; NULL when it makes none, or one of over n_most bytes.
 * may_fail: its elements need not be readable. */
static inline char *write_file(const struct wfs_format *format, const struct wfs_catalog *catalog,
                               size_t n_most, bool may_fail, size_t *ret_n)
{
    struct wfs_error err = {0};
    struct wfs_layout *layout;
    if (wfs_layout_new(format, catalog, &layout, &err) < 0) {
        check_text(err.text);
        return NULL;
    }
    const size_t n_bytes = (size_t)wfs_layout_n_bytes(layout);
    char *bytes = n_bytes > n_most ? NULL : malloc(n_bytes);
    const ssize_t n = bytes == NULL ? 0 : wfs_layout_read(NULL, layout, 0, bytes, n_bytes);
    wfs_layout_free(layout);
    *ret_n = n_bytes;
    if (bytes == NULL || n == (ssize_t)n_bytes)
        return bytes;
    demand(may_fail && n == -EIO);
    free(bytes);
    return NULL;
}

/* What is written can be loaded, has the same tensors, and gives the same file again. */
static inline void write_again(const struct wfs_format *format, const struct wfs_catalog *catalog,
                               size_t n_most, bool may_fail)
{
    size_t n_bytes = 0, n_again = 0;
    char *bytes = write_file(format, catalog, n_most, may_fail, &n_bytes);
    if (bytes == NULL)
        return;
    struct wfs_catalog *found = load_as(format, bytes, n_bytes, false);
    demand(found != NULL && wfs_catalog_n_tensors(found) == wfs_catalog_n_tensors(catalog));
    char *again = write_file(format, found, n_most, may_fail, &n_again);
    demand(again != NULL && n_again == n_bytes && memcmp(again, bytes, n_bytes) == 0);
    free(again);
    free(bytes);
    wfs_catalog_free(found);
}

#endif
