/* SPDX-License-Identifier: MIT */
/*
 * Verification: each file by the format of its content, whichever a catalog of several is of.
 */
#include "format/core/format.h"

enum { N_HEAD = 4096 };

static const struct wfs_format *format_of(const struct source *source)
{
    uint8_t head[N_HEAD];
    const size_t n_head = source->n_bytes < N_HEAD ? (size_t)source->n_bytes : N_HEAD;
    return source_read(source, 0, head, n_head) < 0
               ? NULL
               : format_by_content(head, n_head, source->n_bytes);
}

int wfs_verify(struct wfs_catalog *catalog, struct wfs_error *err)
{
    for (size_t i = 0; i < catalog->n_sources; i++) {
        const struct source *source = catalog->sources[i];
        const struct wfs_format *format = format_of(source);
        const int code = format == NULL || format->functions->verify == NULL
                             ? 0
                             : format->functions->verify(source, catalog, err);
        if (code < 0)
            return code;
    }
    return 0;
}
