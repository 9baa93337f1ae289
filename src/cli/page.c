/* SPDX-License-Identifier: MIT */
/*
 * The page is whole without its script, which sorts tables and leads from the map to them. Every
 * name is escaped by markup_name; the data for other programs is JSON in which < cannot occur.
 */
#include "cli/input.h"
#include "cli/picture.h"
#include "cli/treemap.h"
#include "cli/values.h"
#include "program/print.h"
#include "program/summary.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROWS_MAX = 5000, N_FIGURES_MAX = 400, N_LAYERS_MAX = 256, N_MODULES_MAX = 64 };

/* A name, with what does not fit into a line of a heading. */
static void add_path(struct strbuf *out, const char *path)
{
    const char *slash = strrchr(path, '/');
    markup_name(out, slash != NULL && slash[1] != '\0' ? slash + 1 : path);
}

/* ---- which tensors ---- */

struct ranked {
    uint64_t n_elems;
    size_t i; /* of the row */
};

static int by_size(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->n_elems != y->n_elems)
        return x->n_elems > y->n_elems ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

/* Marks the n rows with the most parameters. Returns a mark for each row, malloc'ed, or NULL. */
static bool *mark_largest(const struct report *report, size_t n)
{
    bool *marks = calloc(report->n_rows + 1, sizeof(*marks));
    autofree struct ranked *ranks = calloc(report->n_rows + 1, sizeof(*ranks));
    if (marks == NULL || ranks == NULL) {
        free(marks);
        return NULL;
    }
    for (size_t i = 0; i < report->n_rows; i++)
        ranks[i] = (struct ranked){input_n_elems(report->tensors[i]), i};
    qsort(ranks, report->n_rows, sizeof(*ranks), by_size);
    for (size_t i = 0; i < n && i < report->n_rows; i++)
        marks[ranks[i].i] = true;
    return marks;
}

static void add_left_out(const struct report *report, size_t n, struct strbuf *out)
{
    if (report->n_rows > n)
        strbuf_printf(out, "<p class=\"dim\">The %zu largest of %s.</p>\n", n,
                      wfs_count(report->n_rows, "tensor").text);
}

/* ---- heading and dtypes ---- */

static void add_heading(const struct report *report, struct strbuf *out)
{
    const struct wfs_catalog *catalog = report->catalogs[0];
    const size_t n = wfs_catalog_n_tensors(catalog);
    uint64_t n_elems = 0, n_bytes = 0, n_states[4] = {0};
    strbuf_puts(out, "<header><h1>");
    add_path(out, report->paths[0]);
    if (report->paths[1] != NULL) {
        strbuf_puts(out, " \xe2\x86\x92 ");
        add_path(out, report->paths[1]);
    }
    for (size_t i = 0; i < n; i++) {
        n_elems = input_add(n_elems, input_n_elems(wfs_catalog_tensor(catalog, i)));
        n_bytes = input_add(n_bytes, wfs_catalog_tensor(catalog, i)->n_bytes);
    }
    strbuf_printf(out, "</h1>\n<p>%s, %s parameters, %s, %s</p>\n", wfs_count(n, "tensor").text,
                  amount_of_count(n_elems).text, amount_of_bytes(n_bytes).text,
                  wfs_catalog_format(catalog)->name);
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct diff_row *row = &report->rows[i];
        n_states[row->b == NULL ? 0 : row->a == NULL ? 1 : row->is_equal ? 3 : 2]++;
    }
    if (report->paths[1] != NULL)
        strbuf_printf(out,
                      "<p>%" PRIu64 " only in A, %" PRIu64 " only in B, %" PRIu64
                      " changed, %" PRIu64 " equal</p>\n",
                      n_states[0], n_states[1], n_states[2], n_states[3]);
    strbuf_puts(out, "</header>\n");
}

static void add_sort_heading(struct strbuf *out, const char *text, bool is_name)
{
    strbuf_printf(out, "<th scope=\"col\"%s><button type=\"button\">%s</button></th>",
                  is_name ? " class=\"name\"" : "", text);
}

static void add_dtypes(const struct report *report, struct strbuf *out)
{
    strbuf_puts(out, "<section><h2>Dtypes</h2><div class=\"wide\"><table class=\"dtypes sorts\">"
                     "<thead><tr>");
    add_sort_heading(out, "dtype", true);
    strbuf_puts(out, "<td></td>");
    add_sort_heading(out, "parameters", false);
    add_sort_heading(out, "bytes", false);
    add_sort_heading(out, "tensors", false);
    strbuf_puts(out, "</tr></thead>\n<tbody>\n");
    uint64_t n_all = 0;
    for (size_t i = 0; i < report->n_dtypes; i++)
        n_all = input_add(n_all, report->dtypes[i].n_bytes);
    for (size_t i = 0; i < report->n_dtypes; i++) {
        const struct report_dtype *dtype = &report->dtypes[i];
        const double share = n_all > 0 ? (double)dtype->n_bytes / (double)n_all : 0;
        strbuf_printf(
            out,
            "<tr><th scope=\"row\" class=\"name\">%s</th><td class=\"bar\"><i class=\"%s\" "
            "style=\"width:%.2f%%\"></i></td><td data-v=\"%" PRIu64 "\">%s</td>"
            "<td data-v=\"%" PRIu64 "\">%s</td><td>%" PRIu64 "</td></tr>\n",
            wfs_dtype_name(dtype->dtype), report->paths[1] != NULL ? "d0" : report_dtype_colour(i),
            share * 100, dtype->n_elems, amount_of_count(dtype->n_elems).text, dtype->n_bytes,
            amount_of_bytes(dtype->n_bytes).text, dtype->n_tensors);
    }
    strbuf_puts(out, "</tbody></table></div></section>\n");
}

/* ---- change by layer and module ---- */

/* The tensors whose keys have the same components before a number: rows [start, end). */
struct stack {
    size_t start, end;
    size_t n_prefix; /* bytes of these components */
    size_t n_modules, n_layers;
    const char *modules[N_MODULES_MAX]; /* what follows the number in a key */
};

/* Finds the first component that is a number. Returns false where there is none. */
static bool find_number(const char *key, size_t *ret_n_prefix)
{
    for (size_t at = 0;; at++) {
        const size_t n = key_tree_component(key, at);
        *ret_n_prefix = at;
        if (n > 0 && strspn(key + at, "0123456789") == n)
            return true;
        at += n;
        if (key[at] == '\0')
            return false;
    }
}

static const char *module_of(const char *key, size_t n_prefix)
{
    const char *rest = key + n_prefix + key_tree_component(key, n_prefix);
    return *rest == '.' ? rest + 1 : "weight";
}

/* Returns the column of a module, a new one while there is room, or N_MODULES_MAX. */
static size_t column_of(struct stack *stack, const char *name)
{
    size_t i = 0;
    while (i < stack->n_modules && strcmp(stack->modules[i], name) != 0)
        i++;
    if (i == stack->n_modules && i < N_MODULES_MAX)
        stack->modules[stack->n_modules++] = name;
    return i;
}

static bool is_same_number(const char *a, const char *b, size_t n_prefix)
{
    const size_t n = n_prefix + key_tree_component(a, n_prefix);
    return strncmp(a, b, n) == 0 && (b[n] == '.' || b[n] == '\0');
}

/* Takes the rows from `start` on that are of one stack. Returns false if there are no two layers.
 */
static bool take_stack(const struct report *report, size_t start, struct stack *ret)
{
    const char *first = report->tensors[start]->key;
    size_t n_prefix;
    *ret = (struct stack){.start = start, .end = start + 1};
    if (!find_number(first, &ret->n_prefix))
        return false;
    for (size_t i = start; i < report->n_rows; i++) {
        const char *key = report->tensors[i]->key;
        if (!find_number(key, &n_prefix) || n_prefix != ret->n_prefix ||
            strncmp(key, first, n_prefix) != 0)
            break;
        ret->n_layers += i == start || !is_same_number(report->tensors[i - 1]->key, key, n_prefix);
        column_of(ret, module_of(key, n_prefix));
        ret->end = i + 1;
    }
    return ret->n_layers > 1;
}

static void add_cell(const struct report *report, size_t i, struct strbuf *out)
{
    const struct diff_row *row = &report->rows[i];
    strbuf_printf(out, "<td class=\"%s\" title=\"", report_colour(report, i));
    markup_name(out, report->tensors[i]->key);
    strbuf_puts(out, "\">");
    if (row->is_equal)
        strbuf_puts(out, "=");
    else if (report_has_relative(row))
        strbuf_printf(out, "%.1e", measures_relative(&row->comparison.measures));
    else
        strbuf_puts(out, row->a == NULL ? "B" : row->b == NULL ? "A" : "\xe2\x89\xa0");
    strbuf_puts(out, "</td>");
}

/* Adds the line of the layer that begins at row i. Returns where the next one begins. */
static size_t add_layer(const struct report *report, struct stack *stack, size_t i,
                        struct strbuf *out)
{
    const char *first = report->tensors[i]->key;
    size_t cells[N_MODULES_MAX + 1];
    for (size_t k = 0; k <= N_MODULES_MAX; k++)
        cells[k] = SIZE_MAX;
    for (; i < stack->end && is_same_number(first, report->tensors[i]->key, stack->n_prefix); i++)
        cells[column_of(stack, module_of(report->tensors[i]->key, stack->n_prefix))] = i;
    strbuf_printf(out, "<tr><th scope=\"row\">%.*s</th>",
                  (int)key_tree_component(first, stack->n_prefix), first + stack->n_prefix);
    for (size_t k = 0; k < stack->n_modules; k++) {
        if (cells[k] != SIZE_MAX)
            add_cell(report, cells[k], out);
        else
            strbuf_puts(out, "<td></td>");
    }
    strbuf_puts(out, "</tr>\n");
    return i;
}

static void add_stack(const struct report *report, struct stack *stack, struct strbuf *out)
{
    autofree char *prefix = strndup(report->tensors[stack->start]->key, stack->n_prefix);
    size_t n_layers = 0;
    strbuf_puts(out, "<div class=\"wide\"><table class=\"heat\"><caption>");
    if (prefix == NULL)
        strbuf_fail(out);
    else
        markup_name(out, prefix);
    strbuf_puts(out, "*</caption><thead><tr><th scope=\"col\">layer</th>");
    for (size_t i = 0; i < stack->n_modules; i++) {
        strbuf_puts(out, "<th scope=\"col\"><span>");
        markup_name(out, stack->modules[i]);
        strbuf_puts(out, "</span></th>");
    }
    strbuf_puts(out, "</tr></thead>\n<tbody>\n");
    for (size_t i = stack->start; i < stack->end && n_layers < N_LAYERS_MAX; n_layers++)
        i = add_layer(report, stack, i, out);
    strbuf_puts(out, "</tbody></table></div>\n");
    if (stack->n_layers > n_layers)
        strbuf_printf(out, "<p class=\"dim\">%s more are in the table below.</p>\n",
                      wfs_count(stack->n_layers - n_layers, "layer").text);
}

static void add_heat(const struct report *report, struct strbuf *out)
{
    struct stack stack;
    bool has_any = false;
    for (size_t i = 0; i < report->n_rows; i = stack.end) {
        if (!take_stack(report, i, &stack))
            continue;
        if (!has_any)
            strbuf_puts(out,
                        "<section><h2>Change by layer and module</h2><p class=\"dim\">The norm "
                        "of the difference as a part of the norm of A; = is equal.</p>\n");
        has_any = true;
        add_stack(report, &stack, out);
    }
    if (has_any)
        strbuf_puts(out, "</section>\n");
}

/* ---- histograms ---- */

static void add_bars(const struct report_values *values, struct strbuf *out)
{
    uint64_t n_most = 1;
    for (size_t i = 0; i < REPORT_N_BINS; i++)
        n_most = values->counts[i] > n_most ? values->counts[i] : n_most;
    strbuf_printf(out,
                  "<svg viewBox=\"0 0 %d 100\" preserveAspectRatio=\"none\" role=\"img\" "
                  "aria-label=\"histogram\"><path d=\"M0 100",
                  REPORT_N_BINS);
    for (size_t i = 0; i < REPORT_N_BINS; i++) {
        const double share = (double)values->counts[i] / (double)n_most;
        const int height = values->counts[i] > 0 ? (int)fmax(share * 98, 1) : 0;
        strbuf_printf(out, "V%dh1", 100 - height);
    }
    strbuf_puts(out, "V100z\"/></svg>");
}

static int add_histograms(const struct report *report, struct strbuf *out)
{
    autofree bool *marks = mark_largest(report, N_FIGURES_MAX);
    if (marks == NULL)
        return -ENOMEM;
    strbuf_puts(out, "<section><h2>Histograms</h2><p class=\"dim\">From the smallest to the "
                     "largest finite element; of large tensors, of elements taken evenly.</p>\n");
    add_left_out(report, N_FIGURES_MAX, out);
    strbuf_puts(out, "<div class=\"grid\">\n");
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct report_values *values = &report->values[i];
        if (!values->has_histogram || !marks[i])
            continue;
        strbuf_puts(out, "<figure>");
        add_bars(values, out);
        strbuf_puts(out, "<figcaption>");
        markup_name(out, report->tensors[i]->key);
        strbuf_printf(out,
                      "<br><span>%.3g \xe2\x80\xa6 %.3g, std %.3g</span></figcaption></figure>\n",
                      values->stats.min, values->stats.max, values->stats.std);
    }
    strbuf_puts(out, "</div></section>\n");
    return 0;
}

/* ---- the table ---- */

static void add_number(struct strbuf *out, bool has_any, double number)
{
    if (has_any && isfinite(number))
        strbuf_printf(out, "<td>%.6g</td>", number);
    else
        strbuf_puts(out, "<td></td>");
}

static void add_count(struct strbuf *out, bool has_any, uint64_t n)
{
    if (has_any)
        strbuf_printf(out, "<td>%" PRIu64 "</td>", n);
    else
        strbuf_puts(out, "<td></td>");
}

static void add_change(const struct report *report, size_t i, struct strbuf *out)
{
    const struct diff_row *row = &report->rows[i];
    const struct comparison *comparison = &row->comparison;
    const bool has_numbers = report_has_relative(row);
    strbuf_printf(out, "<td class=\"name %s\">%s</td>", report_colour(report, i),
                  report_change(row));
    add_number(out, has_numbers, measures_relative(&comparison->measures));
    add_number(out, has_numbers, 1 - measures_cosine(&comparison->measures));
    add_number(out, has_numbers, comparison->max_abs);
    add_count(out, has_numbers, comparison->n_changed);
}

static void add_row(const struct report *report, size_t i, struct strbuf *out)
{
    const struct wfs_tensor *tensor = report->tensors[i];
    const struct report_values *values = &report->values[i];
    const struct wfs_stats *stats = &values->stats;
    const bool has_any = values->has_stats && stats->n_finite > 0;
    strbuf_printf(out, "<tr data-i=\"%zu\" tabindex=\"-1\"><th scope=\"row\" class=\"name\">", i);
    markup_name(out, tensor->key);
    strbuf_printf(out, "</th><td>%s</td><td>", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    print_add_shape(out, &tensor->shape);
    strbuf_puts(out, "</td>");
    add_count(out, true, input_n_elems(tensor));
    add_count(out, true, tensor->n_bytes);
    if (report->paths[1] != NULL)
        add_change(report, i, out);
    add_number(out, has_any, stats->min);
    add_number(out, has_any, stats->mean);
    add_number(out, has_any, stats->max);
    add_number(out, has_any, stats->std);
    add_count(out, values->has_stats, stats->n_zero);
    add_count(out, values->has_stats, stats->n_nan);
    add_count(out, values->has_stats, stats->n_positive_inf + stats->n_negative_inf);
    strbuf_puts(out, "</tr>\n");
}

static int add_table(const struct report *report, struct strbuf *out)
{
    static const char *const numbers[] = {"min", "mean", "max", "std", "zeros", "NaN", "infinite"};
    static const char *const changes[] = {"relative", "1 - cosine", "max diff", "elements"};
    autofree bool *marks = mark_largest(report, N_ROWS_MAX);
    if (marks == NULL)
        return -ENOMEM;
    strbuf_puts(out, "<section><h2>Tensors</h2><p class=\"screen\"><label>Keys that contain "
                     "<input type=\"search\"></label></p>\n");
    add_left_out(report, N_ROWS_MAX, out);
    strbuf_puts(out, "<div class=\"wide\"><table class=\"tensors sorts\"><thead><tr>");
    add_sort_heading(out, "key", true);
    strbuf_puts(out, "<th scope=\"col\">dtype</th><th scope=\"col\">shape</th>");
    add_sort_heading(out, "parameters", false);
    add_sort_heading(out, "bytes", false);
    if (report->paths[1] != NULL)
        add_sort_heading(out, "change", true);
    for (size_t i = 0; report->paths[1] != NULL && i < sizeof(changes) / sizeof(*changes); i++)
        add_sort_heading(out, changes[i], false);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        add_sort_heading(out, numbers[i], false);
    strbuf_puts(out, "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < report->n_rows; i++) {
        if (marks[i])
            add_row(report, i, out);
    }
    strbuf_puts(out, "</tbody></table></div></section>\n");
    return 0;
}

/* ---- data ---- */

static void put_change(const struct diff_row *row, struct json_out *json)
{
    const struct comparison *comparison = &row->comparison;
    const bool has_numbers = report_has_relative(row);
    json_out_open_object(json, "change");
    json_out_text(json, "state", report_change(row));
    json_out_double(json, "relative", has_numbers ? measures_relative(&comparison->measures) : NAN);
    json_out_double(json, "cosine", has_numbers ? measures_cosine(&comparison->measures) : NAN);
    json_out_double(json, "max_abs", has_numbers ? comparison->max_abs : NAN);
    json_out_close(json);
}

static void put_row(const struct report *report, size_t i, struct json_out *json)
{
    const struct report_values *values = &report->values[i];
    json_out_open_object(json, NULL);
    print_json_tensor(json, report->tensors[i]);
    summary_put_stats(json, values->has_stats ? &values->stats : NULL);
    if (values->has_histogram) {
        json_out_u64(json, "sampled", values->n_sampled);
        json_out_u64s(json, "histogram", values->counts, REPORT_N_BINS);
    }
    if (report->paths[1] != NULL)
        put_change(&report->rows[i], json);
    json_out_close(json);
}

/* Adds the data of the table. Outside of texts JSON has no <, > and &. */
static int add_data(const struct report *report, struct strbuf *out)
{
    autostrbuf struct strbuf text = {0};
    struct json_out json = {.text = &text, .spelling = JSON_ASCII, .is_tight = true};
    autofree bool *marks = mark_largest(report, N_ROWS_MAX);
    if (marks == NULL)
        return -ENOMEM;
    json_out_open_object(&json, NULL);
    json_out_u64(&json, "schema", 1);
    json_out_text(&json, "file", report->paths[0]);
    if (report->paths[1] != NULL)
        json_out_text(&json, "other", report->paths[1]);
    json_out_open_array(&json, "tensors");
    for (size_t i = 0; i < report->n_rows; i++) {
        if (marks[i])
            put_row(report, i, &json);
    }
    json_out_close(&json);
    json_out_close(&json);
    if (text.has_failed)
        return -ENOMEM;
    strbuf_puts(out, "<script type=\"application/json\" class=\"data\">");
    for (size_t i = 0; i < text.n_bytes; i++) {
        if (strchr("<>&", text.bytes[i]) != NULL)
            strbuf_printf(out, "\\u%04x", (unsigned)text.bytes[i]);
        else
            strbuf_add(out, text.bytes + i, 1);
    }
    strbuf_puts(out, "</script>\n");
    return 0;
}

int report_write_page(const struct report *report, struct strbuf *out)
{
    strbuf_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    add_path(out, report->paths[0]);
    strbuf_printf(out, "</title>\n<style>%s</style>\n</head>\n<body>\n<div class=\"wfs-report\">\n",
                  report_page_css);
    add_heading(report, out);
    strbuf_puts(out, "<section><h2>Parameters by module</h2>\n");
    int code = report_draw_map(report, out);
    strbuf_puts(out,
                "<p class=\"dim status screen\" aria-live=\"polite\">Arrow keys go from tensor "
                "to tensor, Enter goes to its row.</p></section>\n");
    add_dtypes(report, out);
    if (report->paths[1] != NULL)
        add_heat(report, out);
    if (code == 0)
        code = add_histograms(report, out);
    if (code == 0)
        code = add_table(report, out);
    if (code == 0)
        code = add_data(report, out);
    strbuf_printf(out,
                  "<footer class=\"dim\">weightfs " WFS_VERSION "</footer>\n</div>\n"
                  "<script>%s</script>\n</body>\n</html>\n",
                  report_page_js);
    return code < 0 || out->has_failed ? -ENOMEM : 0;
}
