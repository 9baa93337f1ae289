/* SPDX-License-Identifier: MIT */
/*
 * The largest change comes first: tensors that one checkpoint only has or that cannot be compared,
 * then those whose difference is the largest part of what they were.
 */
#include "cli/diff_tables.h"

#include "cli/key_tree.h"
#include "cli/table.h"
#include "program/print.h"

#include <weightfs/array.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int diff_rows_add(struct diff_rows *rows, const struct diff_row *row)
{
    if (array_reserve(&rows->rows, sizeof(*rows->rows), rows->n_rows, 1, &rows->n_room) < 0)
        return -ENOMEM;
    rows->rows[rows->n_rows++] = *row;
    return 0;
}

void diff_rows_done(struct diff_rows *rows)
{
    free(rows->rows);
    *rows = (struct diff_rows){0};
}

/* ---- order ---- */

static const struct wfs_tensor *tensor_of(const struct diff_row *row)
{
    return row->a != NULL ? row->a : row->b;
}

/* Returns a number that is larger the more was changed. */
static double change_of(const struct diff_row *row)
{
    const struct comparison *comparison = &row->comparison;
    if (row->is_equal)
        return -1;
    if (!comparison->has_content)
        return INFINITY;
    if (comparison->has_numbers)
        return measures_relative(&comparison->measures);
    return (double)comparison->n_changed / (double)(comparison->n_elems + 1);
}

static int by_key(const void *a, const void *b)
{
    return order_of_keys(tensor_of(a)->key, tensor_of(b)->key);
}

static int by_change(const void *a, const void *b)
{
    const double x = change_of(a), y = change_of(b);
    return x != y ? (x > y ? -1 : 1) : by_key(a, b);
}

enum exit_code diff_tables_check(const struct args *args)
{
    const char *text = args_value(args, "sort");
    if (text == NULL || strcmp(text, "change") == 0 || strcmp(text, "key") == 0)
        return EXIT_DONE;
    return print_error(EXIT_USAGE, NULL, "--sort must be change or key, not '%s'",
                       wfs_quote(text).text);
}

static bool is_sorted_by(const struct args *args, const char *order, const char *otherwise)
{
    const char *text = args_value(args, "sort");
    return strcmp(text != NULL ? text : otherwise, order) == 0;
}

/* ---- cells ---- */

static void put_number(struct table *table, bool has_number, double number)
{
    char text[32] = "-";
    if (has_number && !isnan(number))
        snprintf(text, sizeof(text), table->is_human ? "%.3g" : "%.9g", number);
    table_text(table, COLOUR_NONE, text);
}

static void put_measures(struct table *table, bool has_measures, const struct measures *measures)
{
    put_number(table, has_measures, measures_cosine(measures));
    put_number(table, has_measures, measures_l2(measures));
}

/* Names give way to numbers, but not below two fifths of a terminal. */
static size_t least_name(void)
{
    return screen_width(STDOUT_FILENO) * 2 / 5 + 1;
}

/* ---- a row for each tensor ---- */

static const struct table_column long_columns[] = {
    {.heading = "key", .cut = CUT_MIDDLE},     {.heading = "change"},
    {.heading = "relative", .is_right = true}, {.heading = "cosine", .is_right = true},
    {.heading = "L2", .is_right = true},       {.heading = "max", .is_right = true},
    {.heading = "changed", .is_right = true},  {.heading = "elements", .is_right = true},
    {.heading = "dtype", .n_least = 5},        {.heading = "shape", .n_least = 5},
};

enum { N_LONG = sizeof(long_columns) / sizeof(long_columns[0]) };

static void put_dtypes(struct table *table, const struct diff_row *row)
{
    const struct wfs_tensor *last = row->b != NULL ? row->b : row->a;
    char text[64];
    const bool is_one = row->a == NULL || row->b == NULL || row->a->dtype == row->b->dtype;
    snprintf(text, sizeof(text), "%s%s%s",
             is_one ? "" : wfs_dtype_name((enum wfs_dtype)row->a->dtype), is_one ? "" : " -> ",
             wfs_dtype_name((enum wfs_dtype)last->dtype));
    table_text(table, COLOUR_DTYPE, text);
}

static int put_shapes(struct table *table, const struct diff_row *row)
{
    autostrbuf struct strbuf text = {0};
    if (row->a != NULL && row->b != NULL && !wfs_shape_is_equal(&row->a->shape, &row->b->shape)) {
        print_add_shape(&text, &row->a->shape);
        strbuf_puts(&text, " -> ");
    }
    print_add_shape(&text, row->b != NULL ? &row->b->shape : &row->a->shape);
    table_text(table, COLOUR_NONE, text.has_failed ? "" : text.bytes);
    return text.has_failed ? -ENOMEM : 0;
}

static int put_row(struct table *table, const struct diff_row *row)
{
    const struct comparison *comparison = &row->comparison;
    const bool has_numbers = comparison->has_content && comparison->has_numbers;
    const enum screen_colour colour = row->b == NULL   ? COLOUR_REMOVED
                                      : row->a == NULL ? COLOUR_ADDED
                                                       : COLOUR_CHANGED;
    table_name(table, colour, tensor_of(row)->key);
    table_text(table, colour, row->b == NULL ? "removed" : row->a == NULL ? "added" : "changed");
    put_number(table, has_numbers, measures_relative(&comparison->measures));
    put_measures(table, has_numbers, &comparison->measures);
    put_number(table, has_numbers && comparison->n_changed > comparison->n_nan,
               comparison->max_abs);
    if (comparison->has_content) {
        table_count(table, comparison->n_changed);
        table_count(table, comparison->n_elems);
    } else {
        table_text(table, COLOUR_NONE, "-");
        table_text(table, COLOUR_NONE, "-");
    }
    put_dtypes(table, row);
    return put_shapes(table, row);
}

int diff_tables_long(struct diff_rows *rows, const struct args *args)
{
    auto_table struct table table;
    struct table_column columns[N_LONG];
    int code = 0;
    memcpy(columns, long_columns, sizeof(columns));
    columns[0].n_least = least_name();
    if (rows->n_rows > 0)
        qsort(rows->rows, rows->n_rows, sizeof(*rows->rows),
              is_sorted_by(args, "change", "change") ? by_change : by_key);
    table_start(&table, columns, N_LONG, args);
    for (size_t i = 0; i < rows->n_rows && code == 0; i++) {
        if (!rows->rows[i].is_equal)
            code = put_row(&table, &rows->rows[i]);
    }
    if (code == 0)
        code = table_print(&table);
    table_print_hidden(code);
    return code < 0 ? code : 0;
}

/* ---- a row for each module ---- */

enum { N_BAR = 20, N_SHORT_BAR = 8, N_WIDE = 100 /* columns of a terminal */, N_MODULES = 1000 };

/* The bar is for terminals. */
static const struct table_column stat_columns[] = {
    {.heading = "module", .cut = CUT_MIDDLE},
    {.heading = "relative", .is_right = true},
    {.heading = ""},
    {.heading = "changed", .is_right = true},
    {.heading = "removed", .is_right = true},
    {.heading = "added", .is_right = true},
    {.heading = "tensors", .is_right = true},
    {.heading = "cosine", .is_right = true},
    {.heading = "L2", .is_right = true},
};

enum { N_STAT = sizeof(stat_columns) / sizeof(stat_columns[0]), AT_BAR = 2 };

struct total {
    char *name;
    uint64_t n_tensors, n_changed, n_removed, n_added;
    struct measures measures;
};

static bool is_different(const struct total *total)
{
    return total->n_changed + total->n_removed + total->n_added > 0;
}

static void count_row(struct total *total, const struct diff_row *row)
{
    total->n_tensors++;
    total->n_removed += row->b == NULL;
    total->n_added += row->a == NULL;
    total->n_changed += row->a != NULL && row->b != NULL && !row->is_equal;
    measures_add(&total->measures, &row->comparison.measures);
}

static void put_total(struct table *table, const struct total *total, double largest)
{
    const bool has_measures = total->measures.aa > 0 || total->measures.bb > 0;
    const double relative = measures_relative(&total->measures);
    table_text(table, COLOUR_NONE, total->name);
    put_number(table, has_measures, relative);
    if (table->form == TABLE_SCREEN) {
        autostrbuf struct strbuf bar = {0};
        const size_t n_bar = table->n_screen < N_WIDE ? N_SHORT_BAR : N_BAR;
        if (has_measures && relative > 0)
            screen_bar(&bar, fmax(isinf(relative) ? 1 : relative / largest, 1.0 / (double)n_bar),
                       n_bar);
        table_text(table, COLOUR_CHANGED, bar.bytes != NULL ? bar.bytes : "");
    }
    table_count(table, total->n_changed);
    table_count(table, total->n_removed);
    table_count(table, total->n_added);
    table_count(table, total->n_tensors);
    put_measures(table, has_measures, &total->measures);
}

static int total_by_change(const void *a, const void *b)
{
    const struct total *x = a, *y = b;
    const double p = measures_relative(&x->measures), q = measures_relative(&y->measures);
    return p != q ? (p > q ? -1 : 1) : order_of_keys(x->name, y->name);
}

static int print_totals(struct total *totals, size_t n, const struct args *args)
{
    auto_table struct table table;
    struct table_column columns[N_STAT];
    double largest = 0;
    const bool has_bar = screen_width(STDOUT_FILENO) > 0;
    memcpy(columns, stat_columns, sizeof(columns));
    columns[0].n_least = least_name();
    if (!has_bar)
        memmove(columns + AT_BAR, columns + AT_BAR + 1, (N_STAT - AT_BAR - 1) * sizeof(*columns));
    for (size_t i = 0; i < n; i++) {
        const double relative = measures_relative(&totals[i].measures);
        largest = isinf(relative) || relative < largest ? largest : relative;
    }
    if (n > 0 && is_sorted_by(args, "change", "key"))
        qsort(totals, n, sizeof(*totals), total_by_change);
    table_start(&table, columns, has_bar ? N_STAT : N_STAT - 1, args);
    for (size_t i = 0; i < n; i++) {
        if (is_different(&totals[i]))
            put_total(&table, &totals[i], largest);
    }
    const int code = table_print(&table);
    table_print_hidden(code);
    return code < 0 ? code : 0;
}

static int by_start(const void *a, const void *b)
{
    const struct module *x = a, *y = b;
    return (x->run.start > y->run.start) - (x->run.start < y->run.start);
}

/* The rows are those of the tensors of the tree. */
static int sum_up(struct modules *modules, const struct diff_rows *rows, struct total *totals)
{
    if (modules->n_items > 0)
        qsort(modules->items, modules->n_items, sizeof(*modules->items), by_start);
    for (size_t i = 0; i < modules->n_items; i++) {
        const struct key_run *run = &modules->items[i].run;
        struct strbuf name = {0};
        key_tree_name(modules->tree, run, 0, &name);
        totals[i].name = name.bytes;
        if (name.has_failed || name.bytes == NULL)
            return -ENOMEM;
        for (size_t k = run->start; k < run->end; k++)
            count_row(&totals[i], &rows->rows[k]);
    }
    return 0;
}

static int print_modules(struct modules *modules, const struct diff_rows *rows,
                         const struct args *args)
{
    struct total *totals = calloc(modules->n_items + 1, sizeof(*totals));
    if (totals == NULL)
        return -ENOMEM;
    int code = sum_up(modules, rows, totals);
    if (code == 0)
        code = print_totals(totals, modules->n_items, args);
    for (size_t i = 0; i < modules->n_items; i++)
        free(totals[i].name);
    free(totals);
    return code;
}

int diff_tables_stat(struct diff_rows *rows, const struct args *args)
{
    autofree const struct wfs_tensor **tensors = calloc(rows->n_rows + 1, sizeof(*tensors));
    struct key_tree tree = {tensors, rows->n_rows};
    cleanup(modules_done) struct modules modules = {.tree = &tree, .n_most = N_MODULES};
    if (tensors == NULL)
        return -ENOMEM;
    if (rows->n_rows > 0)
        qsort(rows->rows, rows->n_rows, sizeof(*rows->rows), by_key);
    for (size_t i = 0; i < rows->n_rows; i++)
        tensors[i] = tensor_of(&rows->rows[i]);
    const int code = modules_find(&modules);
    return code < 0 ? code : print_modules(&modules, rows, args);
}
