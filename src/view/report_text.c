/* SPDX-License-Identifier: MIT */
/*
 * The report for people: counts, then lists that are cut at ten.
 */
#include "view/report_text.h"

#include <inttypes.h>
#include <string.h>

#include "view/item.h"

enum { N_SHOWN = 10 };

void report_put_escaped(const char *text, FILE *out)
{
    const size_t n_bytes = strlen(text);
    for (size_t i = 0; i < n_bytes;) {
        char escaped[WFS_ESCAPE_MAX];
        i += wfs_escape(WFS_ESCAPE_NAME, text + i, n_bytes - i, escaped);
        fputs(escaped, out);
    }
}

/* A list that is cut at ten. */
struct list {
    FILE *out;
    const char *title;
    size_t n, n_shown;
};

static void start_line(struct list *list)
{
    if (list->n_shown++ == 0)
        fprintf(list->out, "\n%s:\n", list->title);
    fputs("  ", list->out);
}

static void end_list(const struct list *list)
{
    if (list->n > list->n_shown)
        fprintf(list->out, "  and %zu more\n", list->n - list->n_shown);
}

static void put_lines(const struct report_lines *lines, const char *title, const char *between,
                      FILE *out)
{
    struct list list = {out, title, lines->n_lines, 0};
    for (size_t i = 0; i < lines->n_lines && i < N_SHOWN; i++) {
        start_line(&list);
        report_put_escaped(lines->lines[i].name, out);
        if (lines->lines[i].text != NULL) {
            fputs(between, out);
            report_put_escaped(lines->lines[i].text, out);
        }
        fputc('\n', out);
    }
    end_list(&list);
}

static bool is_shown(const struct item *item)
{
    return item_is_shown(item);
}

static bool is_renamed(const struct item *item)
{
    return item_is_shown(item) && item_is_renamed(item);
}

static bool is_guessed(const struct item *item)
{
    return item_is_shown(item) && item_is_guessed(item);
}

static bool is_adapted(const struct item *item)
{
    return item_is_shown(item) && item->done != ACTION_NONE;
}

static bool is_undecided(const struct item *item)
{
    return item_is_shown(item) && item_is_undecided(item);
}

static bool is_cast(const struct item *item)
{
    return item_is_shown(item) && item_is_cast(item);
}

static size_t count(const struct wfs_report *report, bool (*is_one)(const struct item *))
{
    size_t n = 0;
    for (size_t i = 0; i < report->n_items; i++)
        n += is_one(&report->items[i]);
    return n;
}

static void put_items(const struct wfs_report *report, const char *title,
                      bool (*is_one)(const struct item *),
                      void (*put)(const struct wfs_report *, size_t, FILE *), FILE *out)
{
    struct list list = {out, title, count(report, is_one), 0};
    for (size_t i = 0; i < report->n_items && list.n_shown < N_SHOWN; i++) {
        if (!is_one(&report->items[i]))
            continue;
        start_line(&list);
        put(report, i, out);
        fputc('\n', out);
    }
    end_list(&list);
}

static void put_key(const struct wfs_report *report, size_t i, FILE *out)
{
    report_put_escaped(report->items[i].tensor.key, out);
}

static void put_changes(const struct wfs_report *report, size_t i, FILE *out)
{
    const struct item *item = &report->items[i];
    put_key(report, i, out);
    fputs(": ", out);
    report_put_escaped(item->tensor.changes != NULL ? item->tensor.changes : "", out);
}

static void put_rename(const struct wfs_report *report, size_t i, FILE *out)
{
    report_put_escaped(report->items[i].source_key, out);
    fputs(" -> ", out);
    put_key(report, i, out);
}

/* With the option that would decide it. */
static void put_undecided(const struct wfs_report *report, size_t i, FILE *out)
{
    const struct item *item = &report->items[i];
    put_key(report, i, out);
    fprintf(out, ": %s; class='^%s:TYPE' decides it", row_name(item->verdict.row),
            wfs_quote_n(item->tensor.key, item_path_bytes(item)).text);
}

static void put_covers(const struct wfs_report *report, FILE *out)
{
    struct list list = {out, "covered by an overlay", report->n_covers, 0};
    for (size_t i = 0; i < report->n_covers && i < N_SHOWN; i++) {
        const struct catalog_cover *cover = &report->covers[i];
        start_line(&list);
        report_put_escaped(cover->key, out);
        fputs(": ", out);
        report_put_escaped(cover->by, out);
        if (cover->was != NULL)
            fprintf(out, ", %s in place of %s", cover->is, cover->was);
        fputc('\n', out);
    }
    end_list(&list);
}

static void put_cast(const struct wfs_report *report, size_t i, FILE *out)
{
    const struct wfs_tensor *tensor = &report->items[i].tensor;
    put_key(report, i, out);
    fprintf(out, ": %s to %s", wfs_dtype_name((enum wfs_dtype)tensor->stored.dtype),
            wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    if (report->has_counts)
        fprintf(out, ", %s, %s NaN",
                wfs_count_as(report->n_overflow[i], "overflows", "overflow").text,
                wfs_count_as(report->n_nan[i], "is", "are").text);
}

static void put_left_out(const struct wfs_report *report, FILE *out)
{
    struct list list = {out, "left out", report->n_left_out, 0};
    for (size_t i = 0; i < report->n_left_out && i < N_SHOWN; i++) {
        const struct report_left_out *one = &report->left_out[i];
        start_line(&list);
        fprintf(out, "%s ", one->kind);
        report_put_escaped(one->name, out);
        fprintf(out, ": %s\n", one->why);
    }
    end_list(&list);
}

static void put_described(const struct wfs_report *report, FILE *out)
{
    struct list list = {out, "dtype and shape of a sibling", report->n_described, 0};
    for (size_t i = 0; i < report->n_described && i < N_SHOWN; i++) {
        start_line(&list);
        report_put_escaped(report->described[i].path, out);
        fputs(": as ", out);
        report_put_escaped(report->described[i].other, out);
        fputc('\n', out);
    }
    end_list(&list);
}

static void put_commit(const struct wfs_report_commit *commit, FILE *out)
{
    if (commit->output == NULL)
        return;
    fputs("committed to: ", out);
    report_put_escaped(commit->output, out);
    fprintf(out, "\ncommitted: %s, %s, files: %" PRIu64 ", edits: %" PRIu64 "\n",
            wfs_count(commit->n_tensors, "tensor").text, wfs_count(commit->n_bytes, "byte").text,
            commit->n_files, commit->n_edits);
}

void report_put_text(const struct wfs_report *report, FILE *out)
{
    const size_t n_applied = report->has_like ? report->applied.n_lines : count(report, is_shown);
    fprintf(out, "applied: %zu\nskipped by filter: %zu\n", n_applied, report->skipped.n_lines);
    if (report->has_like)
        fprintf(out, "missing: %zu\nunused: %zu\n", report->missing.n_lines,
                report->unused.n_lines);
    fprintf(out, "errors: %zu\nrenamed: %zu\nadapted: %zu, %zu of them by guess\n",
            report->errors.n_lines, count(report, is_renamed), count(report, is_adapted),
            count(report, is_guessed));
    fprintf(out, "left undecided: %zu\ncast: %zu\n",
            report->has_adapted ? count(report, is_undecided) : 0, count(report, is_cast));
    if (report->n_covers > 0)
        fprintf(out, "covered by an overlay: %zu\n", report->n_covers);
    if (report->n_left_out > 0 || report->commit.output != NULL)
        fprintf(out, "left out: %zu\n", report->n_left_out);
    put_commit(&report->commit, out);
    put_lines(&report->errors, "errors", ": ", out);
    put_lines(&report->missing, "missing", "; did you mean ", out);
    put_lines(&report->unused, "unused", "", out);
    put_items(report, "adapted by guess", is_guessed, put_changes, out);
    if (report->has_adapted)
        put_items(report, "left undecided", is_undecided, put_undecided, out);
    put_items(report, "renamed", is_renamed, put_rename, out);
    put_items(report, "cast", is_cast, put_cast, out);
    put_covers(report, out);
    put_lines(&report->skipped, "skipped by filter", "", out);
    put_left_out(report, out);
    put_described(report, out);
    put_lines(&report->notices, "notices", ": ", out);
}
