/* SPDX-License-Identifier: MIT */
/*
 * Oddities become findings.
 */
#include "format/core/oddities.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static enum wfs_severity severity_of(size_t kind, struct odd_levels levels)
{
    return kind <= levels.high     ? WFS_HIGH
           : kind <= levels.medium ? WFS_MEDIUM
           : kind <= levels.low    ? WFS_LOW
                                   : WFS_INFO;
}

int oddities_report(struct wfs_catalog *catalog, const struct odd_count *counts, size_t n_counts,
                    struct odd_levels levels)
{
    for (size_t i = 0; i < n_counts; i++) {
        const uint64_t n = counts[i].n;
        if (n == 0)
            continue;
        if (counts[i].text == NULL)
            return -ENOMEM;
        char more[48] = "";
        if (n > 1)
            snprintf(more, sizeof(more), " (and %" PRIu64 " more like it)", n - 1);
        if (catalog_add_finding(catalog, severity_of(i, levels), "%s%s", counts[i].text, more) < 0)
            return -ENOMEM;
    }
    return 0;
}
