/* SPDX-License-Identifier: MIT */
/*
 * What a report knows of one checkpoint, or of two: rows in the order of keys, with what was
 * computed of each. drawing.c fills it, picture.c draws a map of it, and page.c makes a page.
 */
#ifndef WFS_PICTURE_H
#define WFS_PICTURE_H

#include "program/pairing.h"
#include "program/key_tree.h"

#include <weightfs/catalog.h>

enum { REPORT_N_BINS = 40 };

/* Of the tensor of A, or of B where A has none. */
struct report_values {
    bool has_stats, has_histogram;
    struct wfs_stats stats;
    uint64_t counts[REPORT_N_BINS];
    uint64_t n_sampled; /* elements that were looked at for the counts */
};

struct report_dtype {
    enum wfs_dtype dtype;
    uint64_t n_tensors, n_elems, n_bytes;
};

struct report {
    const char *paths[2]; /* as typed; the second is NULL where there is no B */
    struct wfs_catalog *catalogs[2];
    struct diff_row *rows;             /* malloc'ed */
    struct report_values *values;      /* one for each row; NULL: only a map is drawn */
    const struct wfs_tensor **tensors; /* one for each row, those of the tree */
    struct key_tree tree;
    struct report_dtype dtypes[WFS_N_DTYPES]; /* those that exist, the largest first */
    size_t n_rows, n_dtypes;
};

/* Returns the colour, a class of report/map.css, of the dtype with that place in the list. */
const char *report_dtype_colour(size_t i);

/* Returns the colour of a row: of its dtype, or where there is a B, of its change. */
const char *report_colour(const struct report *report, size_t i);

/* Returns what has become of a row in B, as a word. */
const char *report_change(const struct diff_row *row);

/* Returns whether both are numbers, and so have a relative change. */
bool report_has_relative(const struct diff_row *row);

/* Adds the treemap. -ENOMEM. */
int report_draw_map(const struct report *report, struct strbuf *out);

/* Adds the whole page. -ENOMEM. */
int report_write_page(const struct report *report, struct strbuf *out);

#endif
