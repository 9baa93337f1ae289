/* SPDX-License-Identifier: MIT */
/*
 * The lists of a report, the counts of casts, and what a commit adds.
 */
#include "view/report.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cast.h"

/* ---- lists ---- */

void wfs_report_free(struct wfs_report *report)
{
    if (report == NULL)
        return;
    for (size_t i = 0; i < N_REPORT_LISTS; i++)
        free(report->lists[i].lines);
    free(report->items);
    free(report->order);
    free(report->n_overflow);
    free(report->n_nan);
    arena_done(&report->commit_arena);
    arena_done(&report->arena);
    free(report);
}

void wfs_report_borrow(struct wfs_report *report, const struct wfs_catalog *catalog)
{
    bool is_same = report->n_items == catalog->n_tensors && report->n_order == report->n_items;
    for (size_t i = 0; i < report->n_items && is_same; i++) {
        const struct item *item = &report->items[i];
        is_same = report->order[i] == i && item->done == ACTION_NONE && item->verdict.row == NULL &&
                  memcmp(&item->tensor, &catalog->tensors[i], sizeof(item->tensor)) == 0;
    }
    if (!is_same)
        return;
    free(report->items);
    free(report->order);
    report->items = NULL;
    report->order = NULL;
    report->catalog = catalog;
}

/* Returns the text before if it is the same: most reasons are. */
static const char *copy_new(struct arena *arena, const char *text, const char *before)
{
    return before != NULL && strcmp(text, before) == 0 ? before
                                                       : arena_copy(arena, text, strlen(text));
}

void report_add_line(struct wfs_report *report, enum report_list list,
                     const struct report_line *line)
{
    struct report_lines *lines = &report->lists[list];
    struct arena *arena = list >= REPORT_LEFT_OUT ? &report->commit_arena : &report->arena;
    const struct report_line none = {0};
    if (array_reserve(&lines->lines, sizeof(*lines->lines), lines->n_lines, 1, &lines->n_room) <
        0) {
        report->has_failed = true;
        return;
    }
    struct report_line *copy = &lines->lines[lines->n_lines];
    const struct report_line *last = lines->n_lines > 0 ? copy - 1 : &none;
    *copy = (struct report_line){.is_warning = line->is_warning};
    for (size_t i = 0; i < REPORT_TEXTS_MAX; i++) {
        if (line->texts[i] == NULL)
            continue;
        copy->texts[i] = copy_new(arena, line->texts[i], last->texts[i]);
        report->has_failed = report->has_failed || copy->texts[i] == NULL;
    }
    lines->n_lines += copy->texts[0] != NULL;
}

static int compare_lines(const void *a, const void *b)
{
    const struct report_line *x = a, *y = b;
    return strcmp(x->texts[0], y->texts[0]);
}

void report_sort(struct wfs_report *report, enum report_list list)
{
    const struct report_lines *lines = &report->lists[list];
    if (lines->n_lines > 1)
        qsort(lines->lines, lines->n_lines, sizeof(*lines->lines), compare_lines);
}

int wfs_report_leave_out(struct wfs_report *report, const char *kind, const char *name,
                         const char *why)
{
    report_add_line(report, REPORT_LEFT_OUT, &(struct report_line){{kind, name, why}, false});
    return report->has_failed ? -ENOMEM : 0;
}

int wfs_report_describe(struct wfs_report *report, const char *path, const char *other)
{
    report_add(report, REPORT_DESCRIBED, path, other);
    return report->has_failed ? -ENOMEM : 0;
}

int wfs_report_commit(struct wfs_report *report, const struct wfs_report_commit *commit)
{
    report->lists[REPORT_LEFT_OUT].n_lines = report->lists[REPORT_DESCRIBED].n_lines = 0;
    arena_done(&report->commit_arena);
    report->has_failed = false;
    report->commit = *commit;
    report->commit.output =
        arena_copy(&report->commit_arena, commit->output, strlen(commit->output));
    return report->commit.output == NULL ? -ENOMEM : 0;
}

const char *wfs_report_notice(const struct wfs_report *report)
{
    return report->notice;
}

const char *wfs_report_warning(const struct wfs_report *report, size_t i, const char **ret_about)
{
    const struct report_lines *notices = &report->lists[REPORT_NOTICES];
    for (size_t j = 0; j < notices->n_lines; j++) {
        const struct report_line *line = &notices->lines[j];
        if (!line->is_warning || i-- > 0)
            continue;
        *ret_about = line->texts[0];
        return line->texts[1];
    }
    return NULL;
}

/* ---- casts ---- */

struct losses {
    uint64_t n_overflow, n_nan;
};

/* Adds the losses of a piece of the elements, the first of which is numbered first. */
static void count_piece(const struct wfs_distinct *distinct, enum wfs_dtype to, const char *piece,
                        uint64_t first, size_t n_elems, struct losses *losses)
{
    const enum wfs_dtype from = (enum wfs_dtype)distinct->tensor.dtype;
    const size_t n_elem = wfs_dtype_bits(from) / 8;
    const size_t n_step = distinct->times == NULL ? n_elems : 1;
    for (size_t i = 0; i < n_elems; i += n_step) {
        uint64_t n_overflow = 0, n_nan = 0;
        const uint64_t n_times = wfs_distinct_times(distinct, first + i);
        cast_count(from, piece + i * n_elem, to, n_step, &n_overflow, &n_nan);
        losses->n_overflow += n_overflow * n_times;
        losses->n_nan += n_nan * n_times;
    }
}

static int count_pieces(const struct wfs_distinct *distinct, enum wfs_dtype to,
                        struct losses *losses)
{
    enum { N_PIECE = 1 << 18 };
    const struct wfs_tensor *tensor = &distinct->tensor;
    const size_t n_elem = wfs_dtype_bits((enum wfs_dtype)tensor->dtype) / 8;
    autofree char *piece = malloc(N_PIECE);
    if (piece == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0; offset < tensor->n_bytes; offset += N_PIECE) {
        const ssize_t n = wfs_tensor_read(tensor, offset, piece, N_PIECE);
        if (n < 0)
            return (int)n;
        count_piece(distinct, to, piece, offset / n_elem, (size_t)n / n_elem, losses);
    }
    return 0;
}

static bool is_counted(const struct item *item)
{
    return item_is_shown(item) && (item_is_cast(item) || item_is_computed(item));
}

static int count_cast(const struct wfs_tensor *tensor, struct losses *losses)
{
    cleanup(wfs_distinct_done) struct wfs_distinct distinct = {0};
    struct wfs_tensor stored = *tensor;
    stored.dtype = tensor->stored.dtype;
    int code = wfs_shape_bytes(&stored.shape, (enum wfs_dtype)stored.stored.dtype, &stored.n_bytes);
    if (code == 0)
        code = wfs_distinct_init(NULL, &distinct, &stored, NULL);
    return code < 0 ? code : count_pieces(&distinct, (enum wfs_dtype)tensor->dtype, losses);
}

/* Counts each kind of cast of the same elements once. */
static int count_casts(struct wfs_report *report, const struct wfs_workload *workload,
                       struct wfs_error *err)
{
    struct known {
        bool is_set;
        struct losses losses;
    };
    autofree struct known *all = calloc(wfs_workload_n_groups(workload) + 1, sizeof(*all));
    if (all == NULL)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < report->n_items; i++) {
        const struct item *item = &report->items[i];
        struct known *known = &all[wfs_workload_group(workload, i)];
        if (!is_counted(item))
            continue;
        all[0] = (struct known){0}; /* of those that are alone */
        const int code = known->is_set ? 0 : count_cast(&item->tensor, &known->losses);
        if (code < 0)
            return wfs_tensor_fail_read(err, &item->tensor, code);
        known->is_set = true;
        report->n_overflow[i] = known->losses.n_overflow;
        report->n_nan[i] = known->losses.n_nan;
    }
    return 0;
}

int wfs_report_count_casts(struct wfs_report *report, bool allows_large, struct wfs_error *err)
{
    struct wfs_workload *workload = NULL;
    if (report->has_counts)
        return 0;
    autofree struct wfs_work *works = calloc(report->n_items + 1, sizeof(*works));
    report->n_overflow = calloc(report->n_items + 1, sizeof(uint64_t));
    report->n_nan = calloc(report->n_items + 1, sizeof(uint64_t));
    if (works == NULL || report->n_overflow == NULL || report->n_nan == NULL)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < report->n_items; i++)
        works[i].tensor = is_counted(&report->items[i]) ? &report->items[i].tensor : NULL;
    int code = wfs_workload_new(works, report->n_items, &workload) < 0 ? wfs_fail_memory(err) : 0;
    if (code == 0 && !allows_large)
        code = wfs_workload_check(workload, err);
    if (code == 0)
        code = count_casts(report, workload, err);
    report->has_counts = code == 0;
    wfs_workload_free(workload);
    return code;
}
