/* SPDX-License-Identifier: MIT */
/*
 * What a loader finds odd, counted by kind: one finding a kind, whose text is of the first of them,
 * so that a file cannot make a million findings.
 */
#ifndef WFS_ODDITIES_H
#define WFS_ODDITIES_H

#include "tensor/catalog.h"

struct odd_count {
    uint64_t n;
    const char *text; /* of the first; NULL: out of memory */
};

/* The last kind of each severity; those of a format are numbered from the worst down. */
struct odd_levels {
    size_t high, medium, low;
};

/* Adds the findings of the kinds that were counted. -ENOMEM. */
int oddities_report(struct wfs_catalog *catalog, const struct odd_count *counts, size_t n_counts,
                    struct odd_levels levels);

#endif
