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

enum { N_SHOWN = 10 };

/* How a list is written. */
static const struct form {
    const char *name;                      /* in JSON */
    const char *members[REPORT_TEXTS_MAX]; /* keys of the texts of a line; none: it is one text */
    const char *title;                     /* for people; NULL: only the number is for them */
    const char *before[REPORT_TEXTS_MAX];  /* each text; NULL: it is not shown */
    unsigned n_escaped;                    /* texts; those that follow are plain */
} forms[N_REPORT_LISTS] = {
    [REPORT_APPLIED] = {"applied"},
    [REPORT_SKIPPED] = {"skipped", {NULL}, "skipped by filter", {""}, 1},
    [REPORT_MISSING] = {"missing", {"key", "suggestion"}, "missing", {"", "; did you mean "}, 2},
    [REPORT_UNUSED] = {"unused", {NULL}, "unused", {""}, 1},
    [REPORT_ERRORS] = {"errors", {"tensor", "reason"}, "errors", {"", ": "}, 2},
    [REPORT_COVERED] = {"covered",
                        {"key", "file", "by", "was", "is"},
                        "covered by an overlay",
                        {"", NULL, ": "},
                        3},
    [REPORT_NOTICES] = {"notices", {"about", "text"}, "notices", {"", ": "}, 2},
    [REPORT_LEFT_OUT] = {"left_out", {"kind", "name", "why"}, "left out", {"", " ", ": "}, 2},
    [REPORT_DESCRIBED] =
        {"described", {"path", "as"}, "dtype and shape of a sibling", {"", ": as "}, 2},
};

/* ---- text ---- */

static void put_escaped(struct strbuf *out, const char *text)
{
    strbuf_escape(out, text, strlen(text));
}

static void put_line(struct strbuf *out, enum report_list list, const struct report_line *line)
{
    const struct form *form = &forms[list];
    strbuf_puts(out, "  ");
    for (size_t i = 0; i < REPORT_TEXTS_MAX; i++) {
        if (form->before[i] == NULL || line->texts[i] == NULL)
            continue;
        strbuf_puts(out, form->before[i]);
        if (i < form->n_escaped)
            put_escaped(out, line->texts[i]);
        else
            strbuf_puts(out, line->texts[i]);
    }
    if (list == REPORT_COVERED && line->texts[3] != NULL)
        strbuf_printf(out, ", %s in place of %s", line->texts[4], line->texts[3]);
    strbuf_puts(out, "\n");
}

static void put_list(struct strbuf *out, const struct wfs_report *report, enum report_list list)
{
    const struct report_lines *lines = &report->lists[list];
    if (lines->n_lines > 0)
        strbuf_printf(out, "\n%s:\n", forms[list].title);
    for (size_t i = 0; i < lines->n_lines && i < N_SHOWN; i++)
        put_line(out, list, &lines->lines[i]);
    if (lines->n_lines > N_SHOWN)
        strbuf_printf(out, "  and %zu more\n", lines->n_lines - N_SHOWN);
}

static bool is_adapted(const struct item *item)
{
    return item->done != ACTION_NONE;
}

/* Returns how many of the items that are shown are such. */
static size_t count(const struct wfs_report *report, bool (*is_one)(const struct item *))
{
    size_t n = 0;
    for (size_t i = 0; i < report->n_items; i++) {
        const struct item item = report_item(report, i);
        n += item_is_shown(&item) && is_one(&item);
    }
    return n;
}

static void put_items(struct strbuf *out, const struct wfs_report *report, const char *title,
                      bool (*is_one)(const struct item *),
                      void (*put)(struct strbuf *, const struct wfs_report *, const struct item *,
                                  size_t))
{
    const size_t n = count(report, is_one);
    size_t n_shown = 0;
    if (n > 0)
        strbuf_printf(out, "\n%s:\n", title);
    for (size_t i = 0; i < report->n_items && n_shown < N_SHOWN; i++) {
        const struct item item = report_item(report, i);
        if (!item_is_shown(&item) || !is_one(&item))
            continue;
        strbuf_puts(out, "  ");
        put(out, report, &item, i);
        strbuf_puts(out, "\n");
        n_shown++;
    }
    if (n > n_shown)
        strbuf_printf(out, "  and %zu more\n", n - n_shown);
}

static void put_changes(struct strbuf *out, const struct wfs_report *report,
                        const struct item *item, size_t i)
{
    const struct wfs_tensor *tensor = &item->tensor;
    put_escaped(out, tensor->key);
    strbuf_puts(out, ": ");
    put_escaped(out, tensor->changes != NULL ? tensor->changes : "");
}

static void put_rename(struct strbuf *out, const struct wfs_report *report, const struct item *item,
                       size_t i)
{
    put_escaped(out, wfs_tensor_origin(&item->tensor));
    strbuf_puts(out, " -> ");
    put_escaped(out, item->tensor.key);
}

/* With the option that would decide it. */
static void put_undecided(struct strbuf *out, const struct wfs_report *report,
                          const struct item *item, size_t i)
{
    put_escaped(out, item->tensor.key);
    strbuf_printf(out, ": %s; class='^%s:TYPE' decides it", item->verdict.row,
                  wfs_quote_n(item->tensor.key, item_path_bytes(item)).text);
}

static void put_counts(struct strbuf *out, const struct wfs_report *report, size_t i)
{
    if (report->has_counts)
        strbuf_printf(out, ", %s, %s NaN",
                      wfs_count_as(report->n_overflow[i], "overflows", "overflow").text,
                      wfs_count_as(report->n_nan[i], "is", "are").text);
}

static void put_cast(struct strbuf *out, const struct wfs_report *report, const struct item *item,
                     size_t i)
{
    const struct wfs_tensor *tensor = &item->tensor;
    put_escaped(out, tensor->key);
    strbuf_printf(out, ": %s to %s", wfs_dtype_name((enum wfs_dtype)tensor->stored.dtype),
                  wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    put_counts(out, report, i);
}

static void put_computed(struct strbuf *out, const struct wfs_report *report,
                         const struct item *item, size_t i)
{
    const struct wfs_tensor *tensor = &item->tensor;
    put_escaped(out, tensor->key);
    strbuf_puts(out, ": ");
    put_escaped(out, wfs_tensor_computed(tensor));
    put_counts(out, report, i);
}

static void put_commit(struct strbuf *out, const struct wfs_report_commit *commit)
{
    if (commit->output == NULL)
        return;
    strbuf_puts(out, "committed to: ");
    put_escaped(out, commit->output);
    strbuf_printf(out, "\ncommitted: %s, %s, files: %" PRIu64 ", edits: %" PRIu64 "\n",
                  wfs_count(commit->n_tensors, "tensor").text,
                  wfs_count(commit->n_bytes, "byte").text, commit->n_files, commit->n_edits);
}

static void put_text(struct strbuf *out, const struct wfs_report *report)
{
    const struct report_lines *lists = report->lists;
    strbuf_printf(out, "applied: %zu\nskipped by filter: %zu\n",
                  report->has_like ? lists[REPORT_APPLIED].n_lines : count(report, item_is_shown),
                  lists[REPORT_SKIPPED].n_lines);
    if (report->has_like)
        strbuf_printf(out, "missing: %zu\nunused: %zu\n", lists[REPORT_MISSING].n_lines,
                      lists[REPORT_UNUSED].n_lines);
    strbuf_printf(out, "errors: %zu\nrenamed: %zu\nadapted: %zu, %zu of them by guess\n",
                  lists[REPORT_ERRORS].n_lines, count(report, item_is_renamed),
                  count(report, is_adapted), count(report, item_is_guessed));
    strbuf_printf(out, "left undecided: %zu\ncast: %zu\n",
                  report->has_adapted ? count(report, item_is_undecided) : 0,
                  count(report, item_is_cast));
    if (count(report, item_is_computed) > 0)
        strbuf_printf(out, "computed: %zu\n", count(report, item_is_computed));
    if (lists[REPORT_COVERED].n_lines > 0)
        strbuf_printf(out, "covered by an overlay: %zu\n", lists[REPORT_COVERED].n_lines);
    if (lists[REPORT_LEFT_OUT].n_lines > 0 || report->commit.output != NULL)
        strbuf_printf(out, "left out: %zu\n", lists[REPORT_LEFT_OUT].n_lines);
    put_commit(out, &report->commit);
    put_list(out, report, REPORT_ERRORS);
    put_list(out, report, REPORT_MISSING);
    put_list(out, report, REPORT_UNUSED);
    put_items(out, report, "adapted by guess", item_is_guessed, put_changes);
    if (report->has_adapted)
        put_items(out, report, "left undecided", item_is_undecided, put_undecided);
    put_items(out, report, "renamed", item_is_renamed, put_rename);
    put_items(out, report, "cast", item_is_cast, put_cast);
    put_items(out, report, "computed", item_is_computed, put_computed);
    put_list(out, report, REPORT_COVERED);
    put_list(out, report, REPORT_SKIPPED);
    put_list(out, report, REPORT_LEFT_OUT);
    put_list(out, report, REPORT_DESCRIBED);
    put_list(out, report, REPORT_NOTICES);
}

/* ---- JSON ---- */

static void json_list(struct json_out *out, const struct wfs_report *report, enum report_list list)
{
    const struct form *form = &forms[list];
    json_out_open(out, form->name, '[', JSON_HANGING);
    for (size_t i = 0; i < report->lists[list].n_lines; i++) {
        const struct report_line *line = &report->lists[list].lines[i];
        if (form->members[0] == NULL) {
            json_out_text(out, NULL, line->texts[0]);
            continue;
        }
        json_out_open_object(out, NULL);
        for (size_t j = 0; j < REPORT_TEXTS_MAX && form->members[j] != NULL; j++)
            json_out_text(out, form->members[j], line->texts[j]);
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_items(struct json_out *out, const struct wfs_report *report, const char *name,
                       void (*put)(struct json_out *, const struct wfs_report *,
                                   const struct item *, size_t))
{
    json_out_open(out, name, '[', JSON_HANGING);
    for (size_t i = 0; i < report->n_items; i++) {
        const struct item item = report_item(report, i);
        if (item_is_shown(&item))
            put(out, report, &item, i);
    }
    json_out_close(out);
}

static void json_shown(struct json_out *out, const struct wfs_report *report,
                       const struct item *item, size_t i)
{
    json_out_text(out, NULL, item->tensor.key);
}

static void json_renamed(struct json_out *out, const struct wfs_report *report,
                         const struct item *item, size_t i)
{
    if (!item_is_renamed(item))
        return;
    json_out_open_object(out, NULL);
    json_out_text(out, "from", wfs_tensor_origin(&item->tensor));
    json_out_text(out, "to", item->tensor.key);
    json_out_close(out);
}

static void json_counts(struct json_out *out, const struct wfs_report *report, size_t i)
{
    if (report->has_counts) {
        json_out_u64(out, "overflow", report->n_overflow[i]);
        json_out_u64(out, "nan", report->n_nan[i]);
    }
    json_out_close(out);
}

static void json_cast(struct json_out *out, const struct wfs_report *report,
                      const struct item *item, size_t i)
{
    const struct wfs_tensor *tensor = &item->tensor;
    if (!item_is_cast(item))
        return;
    json_out_open_object(out, NULL);
    json_out_text(out, "key", tensor->key);
    json_out_text(out, "from", wfs_dtype_name((enum wfs_dtype)tensor->stored.dtype));
    json_out_text(out, "to", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    json_counts(out, report, i);
}

static void json_computed(struct json_out *out, const struct wfs_report *report,
                          const struct item *item, size_t i)
{
    if (!item_is_computed(item))
        return;
    json_out_open_object(out, NULL);
    json_out_text(out, "key", item->tensor.key);
    json_out_text(out, "formula", wfs_tensor_computed(&item->tensor));
    json_counts(out, report, i);
}

static void json_adapted(struct json_out *out, const struct wfs_report *report, const char *name,
                         enum certainty certainty)
{
    static const char *const actions[] = {
        [ACTION_NONE] = NULL, [ACTION_TRANSPOSE] = "transposed", [ACTION_RENAME] = "renamed"};
    json_out_open(out, name, '[', JSON_HANGING);
    for (size_t i = 0; i < report->n_items && report->has_adapted; i++) {
        const struct item item = report_item(report, i);
        const bool is_one = item_is_shown(&item) && item.verdict.row != NULL &&
                            item.verdict.certainty == certainty &&
                            (item.done != ACTION_NONE || certainty == UNDECIDED);
        if (!is_one)
            continue;
        json_out_open_object(out, NULL);
        json_out_text(out, "key", item.tensor.key);
        json_out_text(out, "action", actions[item.done]);
        json_out_text(out, "class", class_name(item.verdict.class_));
        json_out_text(out, "row", item.verdict.row);
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_commit(struct json_out *out, const struct wfs_report_commit *commit)
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

static void put_json(struct strbuf *text, const struct wfs_report *report)
{
    struct json_out writer = {.text = text, .spelling = JSON_BYTES, .n_indent_max = 4};
    struct json_out *out = &writer;
    json_out_open_object(out, NULL);
    json_out_u64(out, "schema", 1);
    if (report->has_like)
        json_list(out, report, REPORT_APPLIED);
    else
        json_items(out, report, "applied", json_shown);
    json_list(out, report, REPORT_SKIPPED);
    json_list(out, report, REPORT_MISSING);
    json_list(out, report, REPORT_UNUSED);
    json_list(out, report, REPORT_ERRORS);
    json_items(out, report, "renamed", json_renamed);
    json_out_open_object(out, "adapted");
    json_adapted(out, report, "told", TOLD);
    json_adapted(out, report, "certain", CERTAIN);
    json_adapted(out, report, "likely", LIKELY);
    json_adapted(out, report, "undecided", UNDECIDED);
    json_out_close(out);
    json_items(out, report, "cast", json_cast);
    json_items(out, report, "computed", json_computed);
    json_list(out, report, REPORT_COVERED);
    json_list(out, report, REPORT_LEFT_OUT);
    json_list(out, report, REPORT_DESCRIBED);
    json_commit(out, &report->commit);
    json_list(out, report, REPORT_NOTICES);
    json_out_bool(out, "is_success", report->lists[REPORT_ERRORS].n_lines == 0);
    json_out_close(out);
}

/* ---- the plan ---- */

/* Adds a text as the form spells it, and what separates it from the next. */
static void put_cell(struct strbuf *out, enum wfs_report_form form, const char *text, char end)
{
    autostrbuf struct strbuf cell = {0};
    if (form == WFS_REPORT_TSV)
        strbuf_cell(&cell, text, '\t');
    if (form == WFS_REPORT_NULL)
        strbuf_puts(out, text);
    else
        put_escaped(out, cell.bytes != NULL ? cell.bytes : text);
    strbuf_add(out, &end, 1);
    if (cell.has_failed)
        strbuf_fail(out);
}

/* Why an item is not shown. */
static const char *const drops[] = {
    [DROP_NONE] = "",
    [DROP_TOP_LEVEL_KEY] = "top_level_key",
    [DROP_FILTER] = "filter",
    [DROP_UNREADABLE] = "cannot be read",
    [DROP_SHAPE] = "shape mismatch",
    [DROP_DTYPE] = "dtype mismatch",
    [DROP_UNUSED] = "not in like",
    [DROP_FUSED] = "fuse",
};

static void put_row(struct strbuf *out, enum wfs_report_form form, const struct item *item)
{
    const bool is_examined = item->verdict.row != NULL, is_shown = item_is_shown(item);
    const char end = form == WFS_REPORT_NULL ? '\0' : '\n';
    char shape[256];
    wfs_shape_format(&item->tensor.shape, shape, sizeof(shape));
    put_cell(out, form, wfs_tensor_origin(&item->tensor), '\t');
    if (is_shown)
        put_cell(out, form, item->tensor.key, '\t');
    else
        strbuf_puts(out, "-\t");
    strbuf_printf(out, "%s\t%s\t%s\t%s\t%s\t", wfs_dtype_name((enum wfs_dtype)item->tensor.dtype),
                  shape, class_name(item->verdict.class_),
                  is_examined ? certainty_name(item->verdict.certainty) : "",
                  is_examined ? item->verdict.row : "");
    if (is_shown) {
        put_cell(out, form, item->tensor.changes != NULL ? item->tensor.changes : "", end);
        return;
    }
    strbuf_printf(out, "dropped: %s", drops[item->drop]);
    strbuf_add(out, &end, 1);
}

static void put_plan(struct strbuf *out, const struct wfs_report *report, enum wfs_report_form form)
{
    strbuf_puts(out, form != WFS_REPORT_NULL
                         ? "old_key\tnew_key\tdtype\tshape\tclass\tcertainty\trow\twhy\n"
                         : "");
    for (size_t i = 0; i < report->n_items && !out->has_failed; i++) {
        const struct item item = report_item(report, i);
        put_row(out, form, &item);
    }
}

int wfs_report_write(const struct wfs_report *report, enum wfs_report_form form, char **ret,
                     size_t *ret_n)
{
    autostrbuf struct strbuf out = {0};
    if (form == WFS_REPORT_TEXT)
        put_text(&out, report);
    else if (form == WFS_REPORT_JSON)
        put_json(&out, report);
    else
        put_plan(&out, report, form);
    if (out.has_failed)
        return -ENOMEM;
    *ret_n = out.n_bytes;
    *ret = steal(&out.bytes);
    return 0;
}
