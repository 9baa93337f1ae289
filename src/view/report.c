/* SPDX-License-Identifier: MIT */
/*
 * The lists of a report, the counts of casts, and what a commit adds.
 */
#include "view/report.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cast.h"
#include "view/item.h"

void wfs_report_free(struct wfs_report *report)
{
    if (report == NULL)
        return;
    struct report_lines *lists[] = {&report->applied, &report->unused, &report->skipped,
                                    &report->missing, &report->errors, &report->notices};
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        free(lists[i]->lines);
    free(report->items);
    free(report->order);
    free(report->n_overflow);
    free(report->n_nan);
    free(report->left_out);
    arena_done(&report->commit_arena);
    arena_done(&report->arena);
    free(report);
}

int report_add(struct wfs_report *report, struct report_lines *lines, const char *name,
               const char *text)
{
    if (array_reserve(&lines->lines, sizeof(*lines->lines), lines->n_lines, 1, &lines->n_room) < 0)
        return -ENOMEM;
    const struct report_line line = {
        arena_copy(&report->arena, name, strlen(name)),
        text == NULL ? NULL : arena_copy(&report->arena, text, strlen(text)),
        false,
    };
    if (line.name == NULL || (text != NULL && line.text == NULL))
        return -ENOMEM;
    lines->lines[lines->n_lines++] = line;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct report_line *)a)->name, ((const struct report_line *)b)->name);
}

void report_sort(struct report_lines *lines)
{
    if (lines->n_lines > 1)
        qsort(lines->lines, lines->n_lines, sizeof(*lines->lines), compare_names);
}

static const char *copy(struct arena *arena, const char *text)
{
    return arena_copy(arena, text, strlen(text));
}

/* Returns the text before if it is the same: most reasons are. */
static const char *copy_new(struct arena *arena, const char *text, const char *before)
{
    return before != NULL && strcmp(text, before) == 0 ? before : copy(arena, text);
}

int wfs_report_leave_out(struct wfs_report *report, const char *kind, const char *name,
                         const char *why)
{
    if (array_reserve(&report->left_out, sizeof(*report->left_out), report->n_left_out, 1,
                      &report->n_left_out_room) < 0)
        return -ENOMEM;
    struct arena *arena = &report->commit_arena;
    const struct report_left_out none = {0}, *last = &none;
    if (report->n_left_out > 0)
        last = &report->left_out[report->n_left_out - 1];
    const struct report_left_out one = {copy_new(arena, kind, last->kind), copy(arena, name),
                                        copy_new(arena, why, last->why)};
    if (one.kind == NULL || one.name == NULL || one.why == NULL)
        return -ENOMEM;
    report->left_out[report->n_left_out++] = one;
    return 0;
}

int wfs_report_commit(struct wfs_report *report, const struct wfs_report_commit *commit)
{
    report->n_left_out = 0;
    arena_done(&report->commit_arena);
    report->commit = *commit;
    report->commit.output = copy(&report->commit_arena, commit->output);
    return report->commit.output == NULL ? -ENOMEM : 0;
}

const char *wfs_report_notice(const struct wfs_report *report)
{
    return report->notice;
}

const char *wfs_report_warning(const struct wfs_report *report, size_t i, const char **ret_about)
{
    for (size_t j = 0; j < report->notices.n_lines; j++) {
        const struct report_line *line = &report->notices.lines[j];
        if (!line->is_warning || i-- > 0)
            continue;
        *ret_about = line->name;
        return line->text;
    }
    return NULL;
}

static int count_cast(const struct wfs_tensor *tensor, uint64_t *n_overflow, uint64_t *n_nan)
{
    enum { N_PIECE = 1 << 18 };
    const enum wfs_dtype from = (enum wfs_dtype)tensor->stored.dtype;
    struct wfs_tensor stored = *tensor;
    stored.dtype = tensor->stored.dtype;
    const int code = wfs_shape_bytes(&stored.shape, from, &stored.n_bytes);
    autofree char *piece = malloc(N_PIECE);
    if (code < 0 || piece == NULL)
        return code < 0 ? code : -ENOMEM;
    for (uint64_t offset = 0; offset < stored.n_bytes; offset += N_PIECE) {
        const ssize_t n = wfs_tensor_read(&stored, offset, piece, N_PIECE);
        if (n < 0)
            return (int)n;
        cast_count(from, piece, (enum wfs_dtype)tensor->dtype,
                   (size_t)n / (wfs_dtype_bits(from) / 8), n_overflow, n_nan);
    }
    return 0;
}

int wfs_report_count_casts(struct wfs_report *report, const struct wfs_catalog *catalog)
{
    if (report->has_counts)
        return 0;
    report->n_overflow = calloc(report->n_items + 1, sizeof(uint64_t));
    report->n_nan = calloc(report->n_items + 1, sizeof(uint64_t));
    if (report->n_overflow == NULL || report->n_nan == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < report->n_items; i++) {
        const struct item *item = &report->items[i];
        if (!item_is_shown(item) || !item_is_cast(item))
            continue;
        const int code = count_cast(&item->tensor, &report->n_overflow[i], &report->n_nan[i]);
        if (code < 0)
            return code;
    }
    report->has_counts = true;
    return 0;
}
