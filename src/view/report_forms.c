/* SPDX-License-Identifier: MIT */
/*
 * The forms of a report: text for people, where lists are cut at ten; the complete JSON, member by
 * member; and the table of the plan.
 */
#include <weightfs/cleanup.h>
#include <weightfs/json_out.h>
#include <weightfs/strbuf.h>
#include <weightfs/view.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "view/report.h"

/* ---- text ---- */

enum { N_SHOWN = 10 };

/* Writes a text with the escapes of WFS_ESCAPE_NAME. */
static void put_escaped(const char *text, FILE *out)
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
        put_escaped(lines->lines[i].name, out);
        if (lines->lines[i].text != NULL) {
            fputs(between, out);
            put_escaped(lines->lines[i].text, out);
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
    put_escaped(report->items[i].tensor.key, out);
}

static void put_changes(const struct wfs_report *report, size_t i, FILE *out)
{
    const struct item *item = &report->items[i];
    put_key(report, i, out);
    fputs(": ", out);
    put_escaped(item->tensor.changes != NULL ? item->tensor.changes : "", out);
}

static void put_rename(const struct wfs_report *report, size_t i, FILE *out)
{
    put_escaped(report->items[i].source_key, out);
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
        put_escaped(cover->key, out);
        fputs(": ", out);
        put_escaped(cover->by, out);
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
        put_escaped(one->name, out);
        fprintf(out, ": %s\n", one->why);
    }
    end_list(&list);
}

static void put_described(const struct wfs_report *report, FILE *out)
{
    struct list list = {out, "dtype and shape of a sibling", report->n_described, 0};
    for (size_t i = 0; i < report->n_described && i < N_SHOWN; i++) {
        start_line(&list);
        put_escaped(report->described[i].path, out);
        fputs(": as ", out);
        put_escaped(report->described[i].other, out);
        fputc('\n', out);
    }
    end_list(&list);
}

static void put_commit(const struct wfs_report_commit *commit, FILE *out)
{
    if (commit->output == NULL)
        return;
    fputs("committed to: ", out);
    put_escaped(commit->output, out);
    fprintf(out, "\ncommitted: %s, %s, files: %" PRIu64 ", edits: %" PRIu64 "\n",
            wfs_count(commit->n_tensors, "tensor").text, wfs_count(commit->n_bytes, "byte").text,
            commit->n_files, commit->n_edits);
}

static void put_text(const struct wfs_report *report, FILE *out)
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

/* ---- JSON ---- */

static void open_list(struct json_out *out, const char *title)
{
    json_out_open(out, title, '[', JSON_HANGING);
}

/* Names alone, or objects of a name and a text. */
static void json_lines(const char *title, const struct report_lines *lines, const char *name,
                       const char *text, struct json_out *out)
{
    open_list(out, title);
    for (size_t i = 0; i < lines->n_lines; i++) {
        if (text == NULL) {
            json_out_text(out, NULL, lines->lines[i].name);
            continue;
        }
        json_out_open_object(out, NULL);
        json_out_text(out, name, lines->lines[i].name);
        json_out_text(out, text, lines->lines[i].text);
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_shown(const struct wfs_report *report, struct json_out *out)
{
    open_list(out, "applied");
    for (size_t i = 0; i < report->n_items; i++)
        if (item_is_shown(&report->items[i]))
            json_out_text(out, NULL, report->items[i].tensor.key);
    json_out_close(out);
}

static void json_renamed(const struct wfs_report *report, struct json_out *out)
{
    open_list(out, "renamed");
    for (size_t i = 0; i < report->n_items; i++) {
        const struct item *item = &report->items[i];
        if (!item_is_shown(item) || !item_is_renamed(item))
            continue;
        json_out_open_object(out, NULL);
        json_out_text(out, "from", item->source_key);
        json_out_text(out, "to", item->tensor.key);
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_adapted(const struct wfs_report *report, const char *title,
                         enum certainty certainty, struct json_out *out)
{
    open_list(out, title);
    for (size_t i = 0; i < report->n_items && report->has_adapted; i++) {
        const struct item *item = &report->items[i];
        const bool is_one = item_is_shown(item) && item->verdict.row != ROW_NONE &&
                            item->verdict.certainty == certainty &&
                            (item->done != ACTION_NONE || certainty == UNDECIDED);
        if (!is_one)
            continue;
        json_out_open_object(out, NULL);
        json_out_text(out, "key", item->tensor.key);
        json_out_text(out, "action",
                      item->done == ACTION_NONE        ? NULL
                      : item->done == ACTION_TRANSPOSE ? "transposed"
                                                       : "renamed");
        json_out_text(out, "class", class_name(item->verdict.class_));
        json_out_text(out, "row", row_name(item->verdict.row));
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_cast(const struct wfs_report *report, struct json_out *out)
{
    open_list(out, "cast");
    for (size_t i = 0; i < report->n_items; i++) {
        const struct item *item = &report->items[i];
        const struct wfs_tensor *tensor = &item->tensor;
        if (!item_is_shown(item) || !item_is_cast(item))
            continue;
        json_out_open_object(out, NULL);
        json_out_text(out, "key", tensor->key);
        json_out_text(out, "from", wfs_dtype_name((enum wfs_dtype)tensor->stored.dtype));
        json_out_text(out, "to", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
        if (report->has_counts) {
            json_out_u64(out, "overflow", report->n_overflow[i]);
            json_out_u64(out, "nan", report->n_nan[i]);
        }
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_covered(const struct wfs_report *report, struct json_out *out)
{
    open_list(out, "covered");
    for (size_t i = 0; i < report->n_covers; i++) {
        const struct catalog_cover *cover = &report->covers[i];
        json_out_open_object(out, NULL);
        json_out_text(out, "key", cover->key);
        json_out_text(out, "file", cover->file);
        json_out_text(out, "by", cover->by);
        json_out_text(out, "was", cover->was);
        json_out_text(out, "is", cover->is);
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_left_out(const struct wfs_report *report, struct json_out *out)
{
    open_list(out, "left_out");
    for (size_t i = 0; i < report->n_left_out; i++) {
        json_out_open_object(out, NULL);
        json_out_text(out, "kind", report->left_out[i].kind);
        json_out_text(out, "name", report->left_out[i].name);
        json_out_text(out, "why", report->left_out[i].why);
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_described(const struct wfs_report *report, struct json_out *out)
{
    open_list(out, "described");
    for (size_t i = 0; i < report->n_described; i++) {
        json_out_open_object(out, NULL);
        json_out_text(out, "path", report->described[i].path);
        json_out_text(out, "as", report->described[i].other);
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_commit(const struct wfs_report_commit *commit, struct json_out *out)
{
    if (commit->output == NULL) {
        json_out_text(out, "commit", NULL);
        return;
    }
    json_out_open(out, "commit", '{', JSON_ROW);
    json_out_text(out, "output", commit->output);
    json_out_i64(out, "at", commit->at);
    json_out_u64(out, "edits", commit->n_edits);
    json_out_u64(out, "tensors", commit->n_tensors);
    json_out_u64(out, "files", commit->n_files);
    json_out_u64(out, "bytes", commit->n_bytes);
    json_out_close(out);
}

static void put_json(const struct wfs_report *report, FILE *file)
{
    struct json_out writer = {.file = file, .spelling = JSON_BYTES, .n_indent_max = 4};
    struct json_out *out = &writer;
    json_out_open_object(out, NULL);
    if (report->has_like)
        json_lines("applied", &report->applied, NULL, NULL, out);
    else
        json_shown(report, out);
    json_lines("skipped", &report->skipped, NULL, NULL, out);
    json_lines("missing", &report->missing, "key", "suggestion", out);
    json_lines("unused", &report->unused, NULL, NULL, out);
    json_lines("errors", &report->errors, "tensor", "reason", out);
    json_renamed(report, out);
    json_out_open_object(out, "adapted");
    json_adapted(report, "told", TOLD, out);
    json_adapted(report, "certain", CERTAIN, out);
    json_adapted(report, "likely", LIKELY, out);
    json_adapted(report, "undecided", UNDECIDED, out);
    json_out_close(out);
    json_cast(report, out);
    json_covered(report, out);
    json_left_out(report, out);
    json_described(report, out);
    json_commit(&report->commit, out);
    json_lines("notices", &report->notices, "about", "text", out);
    json_out_bool(out, "is_success", report->errors.n_lines == 0);
    json_out_close(out);
}

/* ---- the plan ---- */

struct plan {
    FILE *out;
    enum wfs_report_form form;
    bool has_failed; /* out of memory */
};

/* Writes a text as the form spells it, and what separates it from the next. */
static void put_cell(struct plan *plan, const char *text, char end)
{
    autostrbuf struct strbuf cell = {0};
    if (plan->form == WFS_REPORT_TSV)
        strbuf_cell(&cell, text, '\t');
    if (plan->form == WFS_REPORT_NULL)
        fputs(text, plan->out);
    else
        put_escaped(cell.bytes != NULL ? cell.bytes : text, plan->out);
    fputc(end, plan->out);
    plan->has_failed |= cell.has_failed;
}

static void put_row(struct plan *plan, const struct item *item)
{
    const bool is_examined = item->verdict.row != ROW_NONE, is_shown = item_is_shown(item);
    const char end = plan->form == WFS_REPORT_NULL ? '\0' : '\n';
    char shape[256];
    wfs_shape_format(&item->tensor.shape, shape, sizeof(shape));
    put_cell(plan, item->source_key, '\t');
    if (is_shown)
        put_cell(plan, item->tensor.key, '\t');
    else
        fputs("-\t", plan->out);
    fprintf(plan->out, "%s\t%s\t%s\t%s\t%s\t", wfs_dtype_name((enum wfs_dtype)item->tensor.dtype),
            shape, class_name(item->verdict.class_),
            is_examined ? certainty_name(item->verdict.certainty) : "",
            row_name(item->verdict.row));
    if (is_shown)
        put_cell(plan, item->tensor.changes != NULL ? item->tensor.changes : "", end);
    else
        fprintf(plan->out, "dropped: %s%c", item_drop_name(item), end);
}

/* Returns false when out of memory. */
static bool put_plan(const struct wfs_report *report, enum wfs_report_form form, FILE *out)
{
    struct plan plan = {.out = out, .form = form};
    if (form != WFS_REPORT_NULL)
        fputs("old_key\tnew_key\tdtype\tshape\tclass\tcertainty\trow\twhy\n", out);
    for (size_t i = 0; i < report->n_items && !plan.has_failed; i++)
        put_row(&plan, &report->items[i]);
    return !plan.has_failed;
}

static void close_stream(FILE **stream)
{
    if (*stream != NULL)
        fclose(*stream);
}

int wfs_report_write(const struct wfs_report *report, enum wfs_report_form form, char **ret,
                     size_t *ret_n)
{
    autofree char *text = NULL;
    cleanup(close_stream) FILE *out = open_memstream(&text, ret_n);
    if (out == NULL)
        return -ENOMEM;
    bool is_bad = false;
    if (form == WFS_REPORT_TEXT)
        put_text(report, out);
    else if (form == WFS_REPORT_JSON)
        put_json(report, out);
    else
        is_bad = !put_plan(report, form, out);
    is_bad = is_bad || fflush(out) != 0 || ferror(out);
    close_stream(&out);
    out = NULL;
    if (is_bad)
        return -ENOMEM;
    *ret = steal(&text);
    return 0;
}
