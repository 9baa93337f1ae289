/* SPDX-License-Identifier: MIT */
/*
 * The complete report as JSON, member by member.
 */
#include "view/report_json.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "view/item.h"

/* In quotes; bytes that are not UTF-8 are written \xHH. */
static void put_text(const char *text, FILE *out)
{
    size_t n_left = strlen(text), n_valid = utf8_valid(text, n_left);
    fputc('"', out);
    for (; n_left > 0; text++, n_left--, n_valid -= n_valid > 0) {
        const unsigned char c = (unsigned char)*text;
        if (n_valid == 0 && c >= 0x80) {
            fprintf(out, "\\\\x%02X", c);
            n_valid = utf8_valid(text + 1, n_left - 1) + 1;
        } else if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < 0x20 || c == 0x7f) {
            fprintf(out, "\\u%04x", c);
        } else {
            fputc(c, out);
        }
    }
    fputc('"', out);
}

/* An array that is being written. */
struct array {
    FILE *out;
    bool has_one;
};

static void next(struct array *array)
{
    fputs(array->has_one ? ",\n    " : "\n    ", array->out);
    array->has_one = true;
}

static void put_member(const char *name, const char *text, bool is_first, FILE *out)
{
    fprintf(out, "%s\"%s\": ", is_first ? "{" : ", ", name);
    if (text == NULL)
        fputs("null", out);
    else
        put_text(text, out);
}

/* Names alone, or objects of a name and a text. */
static void put_lines(const char *title, const struct report_lines *lines, const char *name,
                      const char *text, FILE *out)
{
    struct array array = {out, false};
    fprintf(out, "  \"%s\": [", title);
    for (size_t i = 0; i < lines->n_lines; i++) {
        next(&array);
        if (text == NULL) {
            put_text(lines->lines[i].name, out);
            continue;
        }
        put_member(name, lines->lines[i].name, true, out);
        put_member(text, lines->lines[i].text, false, out);
        fputc('}', out);
    }
    fputs("],\n", out);
}

static void put_shown(const struct wfs_report *report, FILE *out)
{
    struct array array = {out, false};
    fputs("  \"applied\": [", out);
    for (size_t i = 0; i < report->n_items; i++) {
        if (!item_is_shown(&report->items[i]))
            continue;
        next(&array);
        put_text(report->items[i].tensor.key, out);
    }
    fputs("],\n", out);
}

static void put_renamed(const struct wfs_report *report, FILE *out)
{
    struct array array = {out, false};
    fputs("  \"renamed\": [", out);
    for (size_t i = 0; i < report->n_items; i++) {
        const struct item *item = &report->items[i];
        if (!item_is_shown(item) || !item_is_renamed(item))
            continue;
        next(&array);
        put_member("from", item->source_key, true, out);
        put_member("to", item->tensor.key, false, out);
        fputc('}', out);
    }
    fputs("],\n", out);
}

static void put_adapted(const struct wfs_report *report, const char *title,
                        enum certainty certainty, FILE *out)
{
    struct array array = {out, false};
    fprintf(out, "    \"%s\": [", title);
    for (size_t i = 0; i < report->n_items && report->has_adapted; i++) {
        const struct item *item = &report->items[i];
        const bool is_one = item_is_shown(item) && item->verdict.row != ROW_NONE &&
                            item->verdict.certainty == certainty &&
                            (item->done != ACTION_NONE || certainty == UNDECIDED);
        if (!is_one)
            continue;
        next(&array);
        put_member("key", item->tensor.key, true, out);
        put_member("action",
                   item->done == ACTION_NONE        ? NULL
                   : item->done == ACTION_TRANSPOSE ? "transposed"
                                                    : "renamed",
                   false, out);
        put_member("class", class_name(item->verdict.class_), false, out);
        put_member("row", row_name(item->verdict.row), false, out);
        fputc('}', out);
    }
    fputc(']', out);
}

static void put_cast(const struct wfs_report *report, FILE *out)
{
    struct array array = {out, false};
    fputs("  \"cast\": [", out);
    for (size_t i = 0; i < report->n_items; i++) {
        const struct item *item = &report->items[i];
        const struct wfs_tensor *tensor = &item->tensor;
        if (!item_is_shown(item) || !item_is_cast(item))
            continue;
        next(&array);
        put_member("key", tensor->key, true, out);
        put_member("from", wfs_dtype_name((enum wfs_dtype)tensor->stored.dtype), false, out);
        put_member("to", wfs_dtype_name((enum wfs_dtype)tensor->dtype), false, out);
        if (report->has_counts)
            fprintf(out, ", \"overflow\": %" PRIu64 ", \"nan\": %" PRIu64, report->n_overflow[i],
                    report->n_nan[i]);
        fputc('}', out);
    }
    fputs("],\n", out);
}

static void put_covered(const struct wfs_report *report, FILE *out)
{
    struct array array = {out, false};
    fputs("  \"covered\": [", out);
    for (size_t i = 0; i < report->n_covers; i++) {
        const struct catalog_cover *cover = &report->covers[i];
        next(&array);
        put_member("key", cover->key, true, out);
        put_member("file", cover->file, false, out);
        put_member("by", cover->by, false, out);
        put_member("was", cover->was, false, out);
        put_member("is", cover->is, false, out);
        fputc('}', out);
    }
    fputs("],\n", out);
}

static void put_left_out(const struct wfs_report *report, FILE *out)
{
    struct array array = {out, false};
    fputs("  \"left_out\": [", out);
    for (size_t i = 0; i < report->n_left_out; i++) {
        next(&array);
        put_member("kind", report->left_out[i].kind, true, out);
        put_member("name", report->left_out[i].name, false, out);
        put_member("why", report->left_out[i].why, false, out);
        fputc('}', out);
    }
    fputs("],\n", out);
}

static void put_described(const struct wfs_report *report, FILE *out)
{
    struct array array = {out, false};
    fputs("  \"described\": [", out);
    for (size_t i = 0; i < report->n_described; i++) {
        next(&array);
        put_member("path", report->described[i].path, true, out);
        put_member("as", report->described[i].other, false, out);
        fputc('}', out);
    }
    fputs("],\n", out);
}

static void put_commit(const struct wfs_report_commit *commit, FILE *out)
{
    fputs("  \"commit\": ", out);
    if (commit->output == NULL) {
        fputs("null,\n", out);
        return;
    }
    put_member("output", commit->output, true, out);
    fprintf(out,
            ", \"at\": %" PRId64 ", \"edits\": %" PRIu64 ", \"tensors\": %" PRIu64
            ", \"files\": %" PRIu64 ", \"bytes\": %" PRIu64 "},\n",
            commit->at, commit->n_edits, commit->n_tensors, commit->n_files, commit->n_bytes);
}

void report_put_json(const struct wfs_report *report, FILE *out)
{
    fputs("{\n", out);
    if (report->has_like)
        put_lines("applied", &report->applied, NULL, NULL, out);
    else
        put_shown(report, out);
    put_lines("skipped", &report->skipped, NULL, NULL, out);
    put_lines("missing", &report->missing, "key", "suggestion", out);
    put_lines("unused", &report->unused, NULL, NULL, out);
    put_lines("errors", &report->errors, "tensor", "reason", out);
    put_renamed(report, out);
    fputs("  \"adapted\": {\n", out);
    put_adapted(report, "told", TOLD, out);
    fputs(",\n", out);
    put_adapted(report, "certain", CERTAIN, out);
    fputs(",\n", out);
    put_adapted(report, "likely", LIKELY, out);
    fputs(",\n", out);
    put_adapted(report, "undecided", UNDECIDED, out);
    fputs("\n  },\n", out);
    put_cast(report, out);
    put_covered(report, out);
    put_left_out(report, out);
    put_described(report, out);
    put_commit(&report->commit, out);
    put_lines("notices", &report->notices, "about", "text", out);
    fputs("  \"is_success\": ", out);
    fputs(report->errors.n_lines == 0 ? "true\n}\n" : "false\n}\n", out);
}
