/* SPDX-License-Identifier: MIT */
/*
 * What a view did: the items, including dropped ones, and lists of what has no item. Its forms as
 * text are in report_text.h, report_json.h and report_forms.c.
 */
#ifndef WFS_REPORT_H
#define WFS_REPORT_H

#include <weightfs/view.h>

#include "base/arena.h"

struct catalog_cover;
struct item;

/* Two texts, such as a missing key and its suggestion, or a tensor and its error. */
struct report_line {
    const char *name, *text;
    bool is_warning; /* of a notice: it is also printed at once */
};

struct report_lines {
    struct report_line *lines; /* malloc'ed */
    size_t n_lines, n_room;
};

struct report_left_out {
    const char *kind, *name, *why;
};

/* A file with the dtype and shape of another one. */
struct report_described {
    const char *path, *other;
};

struct wfs_report {
    struct arena arena;
    struct item *items; /* malloc'ed, in the order of the source */
    size_t n_items;
    uint32_t *order; /* malloc'ed: items that are shown, in the order of the result */
    size_t n_order;
    struct report_lines applied; /* with `like` only, in its order */
    struct report_lines unused;  /* with `like` only; this and the next two are sorted */
    struct report_lines skipped, missing, errors, notices;
    const struct catalog_cover *covers; /* borrowed from the catalog */
    size_t n_covers;
    bool has_like;
    bool has_adapted; /* adapters examined the tensors */
    bool has_counts;
    uint64_t *n_overflow, *n_nan; /* malloc'ed, by item, when has_counts */
    const char *notice;

    struct arena commit_arena;        /* texts of what follows */
    struct wfs_report_commit commit;  /* the last one; no output: none */
    struct report_left_out *left_out; /* malloc'ed */
    size_t n_left_out, n_left_out_room;
    struct report_described *described; /* malloc'ed */
    size_t n_described, n_described_room;
};

/* Appends a line. Texts are copied; text may be NULL. -ENOMEM. */
int report_add(struct wfs_report *report, struct report_lines *lines, const char *name,
               const char *text);

/* Sorts by name. */
void report_sort(struct report_lines *lines);

#endif
