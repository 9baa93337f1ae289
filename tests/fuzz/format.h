/* SPDX-License-Identifier: MIT */
/*
 * What the targets of formats without values share: loading with one loader, and texts for people.
 */
#ifndef WFS_FUZZ_FORMAT_H
#define WFS_FUZZ_FORMAT_H

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
static inline struct wfs_catalog *load_as(const struct wfs_format *format, const void *bytes,
                                          size_t n_bytes, bool force)
{
    struct wfs_error err = {0};
    struct load_context context = {.force = force};
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

static inline void check_findings(const struct wfs_catalog *catalog)
{
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++)
        check_text(wfs_catalog_finding(catalog, i)->text);
}

#endif
