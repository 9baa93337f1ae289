/* SPDX-License-Identifier: MIT */
/*
 * What a view did: the items, including dropped ones, and lists of what has no item. Its forms as
 * text are in report_forms.c.
 */
#ifndef WFS_REPORT_H
#define WFS_REPORT_H

#include <weightfs/view.h>

#include "catalog/catalog.h"
#include "view/evidence/verdict.h"

/* Why an item is not shown. */
enum drop {
    DROP_NONE, /* it is shown */
    DROP_TOP_LEVEL_KEY,
    DROP_FILTER,
    DROP_UNREADABLE,
    DROP_SHAPE,
    DROP_DTYPE,
    DROP_UNUSED,
    DROP_FUSED,
};

/*
 * A tensor on its way through a view: what it has become, what it was, and what was decided about
 * it. An item that is dropped stays, for the report.
 */
struct item {
    struct wfs_tensor tensor;
    const char *cut_key;    /* as it was in the file, without top_level_key */
    const char *last_key;   /* after the last pass that attributes have followed */
    const char *scale;      /* key of the tensor with its scales, before surgery; NULL: none */
    struct verdict verdict; /* by evidence or by the user; no row: not examined */
    uint32_t base;          /* 1 + number of the item that it is an attribute of; 0: none */
    uint8_t drop;           /* enum drop */
    uint8_t done;           /* enum action: what an adapter or `like` did */
    uint8_t oddities;       /* bits that surgery gives a meaning */
    bool has_scale : 1;     /* its scales are shown, too, or are an attribute of it */
    bool has_codes : 1;     /* it is a companion of them */
    bool is_kept : 1;       /* a keep rule matches it */
    bool is_visited : 1;    /* `like` has looked at it */
};

static inline bool item_is_shown(const struct item *item)
{
    return item->drop == DROP_NONE;
}

/* Returns true if the key is not the one in the file. */
static inline bool item_is_renamed(const struct item *item)
{
    return strcmp(item->tensor.key, wfs_tensor_origin(&item->tensor)) != 0;
}

static inline bool item_is_computed(const struct item *item)
{
    return item->tensor.stored.is_unrounded;
}

static inline bool item_is_cast(const struct item *item)
{
    return item->tensor.dtype != item->tensor.stored.dtype && !item_is_computed(item);
}

/* Returns true if an adapter changed it on likely evidence. */
static inline bool item_is_guessed(const struct item *item)
{
    return item->done != ACTION_NONE && item->verdict.certainty == LIKELY;
}

static inline bool item_is_undecided(const struct item *item)
{
    return item->verdict.row != NULL && item->verdict.certainty == UNDECIDED;
}

/* Returns true if its elements are packed or opaque: they cannot be reordered or cut. */
static inline bool item_is_rigid(const struct item *item)
{
    const struct wfs_tensor *tensor = &item->tensor;
    return tensor->dtype == WFS_OPAQUE || wfs_dtype_bits((enum wfs_dtype)tensor->dtype) % 8 != 0 ||
           wfs_dtype_bits((enum wfs_dtype)tensor->stored.dtype) % 8 != 0;
}

/* Returns the number of bytes of the key before its leaf, the dot included. */
static inline size_t item_path_bytes(const struct item *item)
{
    return (size_t)(key_leaf(item->tensor.key) - item->tensor.key);
}

/* ---- the report ---- */

/* What has no item, or is said of one. With `like` only: APPLIED, UNUSED and MISSING. */
enum report_list {
    REPORT_APPLIED, /* keys, in the order of `like` */
    REPORT_SKIPPED, /* keys; this and the next two are sorted */
    REPORT_MISSING, /* keys, and the suggestion for each or NULL */
    REPORT_UNUSED,  /* keys */
    REPORT_ERRORS,  /* of tensors: key and reason */
    REPORT_COVERED, /* what became of tensors that an overlay has too */
    REPORT_NOTICES, /* what each is about, and its text */
    /* What a commit adds. */
    REPORT_LEFT_OUT,  /* kind, name, and why */
    REPORT_DESCRIBED, /* a file of the tree, and the one that has the same dtype and shape */
    N_REPORT_LISTS,
};

enum { REPORT_TEXTS_MAX = 5 };

struct report_line {
    const char *texts[REPORT_TEXTS_MAX];
    bool is_warning; /* of a notice: it is also printed at once */
};

struct report_lines {
    struct report_line *lines; /* malloc'ed */
    size_t n_lines, n_room;
};

struct wfs_report {
    struct arena arena;
    struct arena commit_arena; /* texts of what a commit adds */
    bool has_failed;           /* memory ran out: it is not complete, nor are the items */
    struct item *items;        /* malloc'ed, in the order of the source; NULL: see catalog */
    size_t n_items;
    const struct wfs_catalog *catalog; /* borrowed: its tensors are the items; NULL: see items */
    uint32_t *order; /* malloc'ed: items that are shown, in the order of the result */
    size_t n_order;
    struct report_lines lists[N_REPORT_LISTS];
    bool has_like;
    bool has_adapted; /* adapters examined the tensors */
    bool has_counts;
    uint64_t *n_overflow, *n_nan; /* malloc'ed, by item, when has_counts */
    const char *notice;
    struct wfs_report_commit commit; /* the last one; no output: none */
};

/* Returns an item, after the view was applied. */
static inline struct item report_item(const struct wfs_report *report, size_t i)
{
    return report->items != NULL ? report->items[i]
                                 : (struct item){.tensor = report->catalog->tensors[i]};
}

/* Appends a line, whose texts are copied. Without memory, has_failed is set. */
void report_add_line(struct wfs_report *report, enum report_list list,
                     const struct report_line *line);

/* The same for one of two texts. */
static inline void report_add(struct wfs_report *report, enum report_list list, const char *name,
                              const char *text)
{
    report_add_line(report, list, &(struct report_line){{name, text}, false});
}

/* Sorts by the first text. */
void report_sort(struct wfs_report *report, enum report_list list);

#endif
