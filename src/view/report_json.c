/* SPDX-License-Identifier: MIT */
/*
 * The complete report as JSON, member by member.
 */
#include "view/report_json.h"

#include <weightfs/json_out.h>

#include "view/item.h"

static void open_list(struct json_out *out, const char *title)
{
    json_out_open(out, title, '[', JSON_HANGING);
}

/* Names alone, or objects of a name and a text. */
static void put_lines(const char *title, const struct report_lines *lines, const char *name,
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

static void put_shown(const struct wfs_report *report, struct json_out *out)
{
    open_list(out, "applied");
    for (size_t i = 0; i < report->n_items; i++)
        if (item_is_shown(&report->items[i]))
            json_out_text(out, NULL, report->items[i].tensor.key);
    json_out_close(out);
}

static void put_renamed(const struct wfs_report *report, struct json_out *out)
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

static void put_adapted(const struct wfs_report *report, const char *title,
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

static void put_cast(const struct wfs_report *report, struct json_out *out)
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

static void put_covered(const struct wfs_report *report, struct json_out *out)
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

static void put_left_out(const struct wfs_report *report, struct json_out *out)
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

static void put_described(const struct wfs_report *report, struct json_out *out)
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

static void put_commit(const struct wfs_report_commit *commit, struct json_out *out)
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

void report_put_json(const struct wfs_report *report, FILE *file)
{
    struct json_out writer = {.file = file, .spelling = JSON_BYTES, .n_indent_max = 4};
    struct json_out *out = &writer;
    json_out_open_object(out, NULL);
    if (report->has_like)
        put_lines("applied", &report->applied, NULL, NULL, out);
    else
        put_shown(report, out);
    put_lines("skipped", &report->skipped, NULL, NULL, out);
    put_lines("missing", &report->missing, "key", "suggestion", out);
    put_lines("unused", &report->unused, NULL, NULL, out);
    put_lines("errors", &report->errors, "tensor", "reason", out);
    put_renamed(report, out);
    json_out_open_object(out, "adapted");
    put_adapted(report, "told", TOLD, out);
    put_adapted(report, "certain", CERTAIN, out);
    put_adapted(report, "likely", LIKELY, out);
    put_adapted(report, "undecided", UNDECIDED, out);
    json_out_close(out);
    put_cast(report, out);
    put_covered(report, out);
    put_left_out(report, out);
    put_described(report, out);
    put_commit(&report->commit, out);
    put_lines("notices", &report->notices, "about", "text", out);
    json_out_bool(out, "is_success", report->errors.n_lines == 0);
    json_out_close(out);
}
