/* SPDX-License-Identifier: MIT */
/*
 * The largest change
 * comes first: tensors that one checkpoint only has or that cannot be compared, then those whose
 * difference is the largest part of what they were.
 */
#include "cli/diff_tables.h"

#include "cli/table.h"
#include "program/key_tree.h"
#include "program/print.h"

#include <weightfs/catalog.h>
#include <weightfs/cleanup.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns 1 - cosine, with the digits that a cosine near 1 has lost. */
static double measures_turn(const struct measures *measures)
{
    const long double turn = 1 - measures->ab / (sqrtl(measures->aa) * sqrtl(measures->bb));
    return (double)(turn < 0 ? 0 : turn > 2 ? 2 : turn);
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

static int by_change(const void *a, const void *b)
{
    const double x = change_of(a), y = change_of(b);
    return x != y ? (x > y ? -1 : 1) : diff_row_order(a, b);
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

/* Pipes have no heading: there the cosine stays what it was. */
static void put_measures(struct table *table, bool has_measures, const struct measures *measures)
{
    const bool is_cosine = table->form == TABLE_TABS;
    table_number(table, !has_measures ? NAN
                        : is_cosine   ? measures_cosine(measures)
                                      : measures_turn(measures));
    table_number(table, has_measures ? measures_l2(measures) : NAN);
}

/* ---- a row for each tensor ---- */

static const struct table_column long_columns[] = {
    {.heading = "key", .member = "key", .is_key = true},
    {.heading = "change", .member = "change", .stays = true},
    {.heading = "relative", .member = "relative", .is_right = true, .stays = true},
    {.heading = "1-cosine", .member = "one_minus_cosine", .is_right = true},
    {.heading = "L2", .member = "l2", .is_right = true},
    {.heading = "max", .member = "max_abs", .is_right = true},
    {.heading = "changed", .member = "changed", .is_right = true},
    {.heading = "elements", .member = "compared", .is_right = true},
    {.heading = "dtype", .member = "dtype"},
    {.heading = "shape", .member = "shape"},
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

static void put_shapes(struct table *table, const struct diff_row *row)
{
    struct strbuf text = {0};
    if (row->a != NULL && row->b != NULL && !wfs_shape_is_equal(&row->a->shape, &row->b->shape)) {
        print_add_shape(&text, &row->a->shape);
        strbuf_puts(&text, " -> ");
    }
    print_add_shape(&text, row->b != NULL ? &row->b->shape : &row->a->shape);
    table_built(table, COLOUR_NONE, &text);
}

static void put_row(struct table *table, const struct diff_row *row)
{
    const struct comparison *comparison = &row->comparison;
    const bool has_numbers = comparison->has_content && comparison->has_numbers;
    const bool is_renamed = diff_row_is_renamed(row);
    const bool has_dtypes =
        row->a != NULL && row->b != NULL && row->a->dtype != row->b->dtype; /* two */
    const bool is_comparable =
        (comparison->has_content && !(has_dtypes && table->form == TABLE_SCREEN)) ||
        table->form == TABLE_TABS;
    const enum screen_colour colour = row->b == NULL   ? COLOUR_REMOVED
                                      : row->a == NULL ? COLOUR_ADDED
                                                       : COLOUR_CHANGED;
    struct strbuf key = {0}, new_key = {0};
    strbuf_puts(&key, diff_row_tensor(row)->key);
    if (is_renamed && table->form != TABLE_SCREEN)
        strbuf_printf(&key, " -> %s", row->b->key);
    table_name(table, colour, key.has_failed ? NULL : key.bytes);
    strbuf_done(&key);
    table_text(table, colour,
               row->b == NULL                                       ? "removed"
               : row->a == NULL                                     ? "added"
               : is_renamed                                         ? "renamed"
               : row->failed != NULL                                ? "unreadable"
               : is_comparable                                      ? "changed"
               : wfs_shape_is_equal(&row->a->shape, &row->b->shape) ? "new dtype"
                                                                    : "new shape");
    table_number(table,
                 has_numbers && !is_renamed ? measures_relative(&comparison->measures) : NAN);
    put_measures(table, has_numbers && !is_renamed, &comparison->measures);
    table_number(table, has_numbers && comparison->n_changed > comparison->n_nan
                            ? comparison->max_abs
                            : NAN);
    if (comparison->has_content) {
        table_count(table, comparison->n_changed);
        table_count(table, comparison->n_elems);
    } else {
        table_exact(table, NULL);
        table_exact(table, NULL);
    }
    put_dtypes(table, row);
    put_shapes(table, row);
    if (is_renamed && table->form == TABLE_SCREEN) {
        strbuf_puts(&new_key, "  -> ");
        strbuf_escape(&new_key, row->b->key, strlen(row->b->key));
        table_below(table, colour, &new_key);
    }
}

static int print_long(struct diff_row *rows, size_t n_rows, const struct args *args)
{
    auto_table struct table table;
    if (n_rows > 0)
        qsort(rows, n_rows, sizeof(*rows),
              is_sorted_by(args, "change", "change") ? by_change : diff_row_order);
    table_start(&table, long_columns, N_LONG, args);
    for (size_t i = 0; i < n_rows; i++) {
        if (!rows[i].is_equal)
            put_row(&table, &rows[i]);
    }
    const int code = table_print(&table);
    table_print_dropped(&table);
    return code;
}

/* ---- a row for each module ---- */

enum { N_BAR = 20, N_SHORT_BAR = 8, N_WIDE = 100 /* columns of a terminal */, N_MODULES = 1000 };

/* The bar is for terminals. */
static const struct table_column stat_columns[] = {
    {.heading = "module", .member = "module", .is_key = true},
    {.heading = "relative", .member = "relative", .is_right = true, .stays = true},
    {.heading = "", .stays = true},
    {.heading = "changed",
     .member = "changed",
     .is_right = true,
     .stays = true,
     .hides_zero = true},
    {.heading = "removed",
     .member = "removed",
     .is_right = true,
     .stays = true,
     .hides_zero = true},
    {.heading = "added", .member = "added", .is_right = true, .stays = true, .hides_zero = true},
    {.heading = "tensors", .member = "tensors", .is_right = true},
    {.heading = "1-cosine", .member = "one_minus_cosine", .is_right = true},
    {.heading = "L2", .member = "l2", .is_right = true},
    {.heading = "renamed",
     .member = "renamed",
     .is_right = true,
     .stays = true,
     .hides_zero = true},
};

enum { N_STAT = sizeof(stat_columns) / sizeof(stat_columns[0]), AT_BAR = 2 };

struct total {
    char *name;
    uint64_t n_tensors, n_changed, n_renamed, n_removed, n_added;
    struct measures measures;
};

static void count_row(struct total *total, const struct diff_row *row)
{
    total->n_tensors++;
    total->n_removed += row->b == NULL;
    total->n_added += row->a == NULL;
    total->n_renamed += diff_row_is_renamed(row);
    total->n_changed += row->a != NULL && row->b != NULL && row->failed == NULL && !row->is_equal &&
                        !diff_row_is_renamed(row);
    measures_add(&total->measures, &row->comparison.measures);
}

static void put_total(struct table *table, const struct total *total, double largest)
{
    const bool has_measures = total->measures.aa > 0 || total->measures.bb > 0;
    const double relative = measures_relative(&total->measures);
    table_name(table, COLOUR_NONE, total->name);
    table_number(table, has_measures ? relative : NAN);
    if (table->form == TABLE_SCREEN) {
        const size_t n_bar = table->n_screen < N_WIDE ? N_SHORT_BAR : N_BAR;
        const double share = fmax(isinf(relative) ? 1 : relative / largest, 1.0 / (double)n_bar);
        table_bar(table, COLOUR_CHANGED, has_measures && relative > 0 ? share : 0, n_bar);
    }
    table_count(table, total->n_changed);
    table_count(table, total->n_removed);
    table_count(table, total->n_added);
    table_count(table, total->n_tensors);
    put_measures(table, has_measures, &total->measures);
    table_count(table, total->n_renamed);
}

static int total_by_change(const void *a, const void *b)
{
    const struct total *x = a, *y = b;
    const double p = measures_relative(&x->measures), q = measures_relative(&y->measures);
    return p != q ? (p > q ? -1 : 1) : order_of_keys(x->name, y->name);
}

static int print_totals(struct total *totals, size_t n, const struct args *args,
                        struct json_out *json)
{
    auto_table struct table table;
    struct table_column columns[N_STAT];
    double largest = 0;
    const bool has_bar = screen_width(STDOUT_FILENO) > 0 && json == NULL && !args_has(args, "csv");
    memcpy(columns, stat_columns, sizeof(columns));
    if (!has_bar)
        memmove(columns + AT_BAR, columns + AT_BAR + 1, (N_STAT - AT_BAR - 1) * sizeof(*columns));
    for (size_t i = 0; i < n; i++) {
        const double relative = measures_relative(&totals[i].measures);
        largest = isinf(relative) || relative < largest ? largest : relative;
    }
    if (n > 0 && is_sorted_by(args, "change", "key"))
        qsort(totals, n, sizeof(*totals), total_by_change);
    if (json != NULL)
        table_start_json(&table, columns, N_STAT - 1, json);
    else
        table_start(&table, columns, has_bar ? N_STAT : N_STAT - 1, args);
    for (size_t i = 0; i < n; i++) {
        if (totals[i].n_changed + totals[i].n_renamed + totals[i].n_removed + totals[i].n_added > 0)
            put_total(&table, &totals[i], largest);
    }
    const int code = table_print(&table);
    table_print_dropped(&table);
    return code;
}

static int by_start(const void *a, const void *b)
{
    const struct module *x = a, *y = b;
    return (x->run.start > y->run.start) - (x->run.start < y->run.start);
}

/* The rows are those of the tensors of the tree. */
static int sum_up(struct modules *modules, const struct diff_row *rows, struct total *totals)
{
    if (modules->n_items > 0)
        qsort(modules->items, modules->n_items, sizeof(*modules->items), by_start);
    for (size_t i = 0; i < modules->n_items; i++) {
        const struct key_run *run = &modules->items[i].run;
        const char *key = modules->tree->tensors[run->start]->key;
        const size_t n_name = run->end - run->start > 1 ? run->n_prefix - 1 : strlen(key);
        totals[i].name = n_name > 0 ? strndup(key, n_name) : strdup("%");
        if (totals[i].name == NULL)
            return -ENOMEM;
        for (size_t k = run->start; k < run->end; k++)
            count_row(&totals[i], &rows[k]);
    }
    return 0;
}

static int print_by_module(struct modules *modules, const struct diff_row *rows,
                           const struct args *args, struct json_out *json)
{
    struct total *totals = calloc(modules->n_items + 1, sizeof(*totals));
    if (totals == NULL)
        return -ENOMEM;
    int code = sum_up(modules, rows, totals);
    if (code == 0)
        code = print_totals(totals, modules->n_items, args, json);
    for (size_t i = 0; i < modules->n_items; i++)
        free(totals[i].name);
    free(totals);
    return code;
}

static int print_stat(struct diff_row *rows, size_t n_rows, const struct args *args,
                      struct json_out *json)
{
    autofree const struct wfs_tensor **tensors = calloc(n_rows + 1, sizeof(*tensors));
    struct key_tree tree = {tensors, n_rows};
    cleanup(modules_done) struct modules modules = {.tree = &tree, .n_most = N_MODULES};
    if (tensors == NULL)
        return -ENOMEM;
    diff_rows_sort(rows, n_rows);
    for (size_t i = 0; i < n_rows; i++)
        tensors[i] = diff_row_tensor(&rows[i]);
    const int code = modules_find(&modules);
    return code < 0 ? code : print_by_module(&modules, rows, args, json);
}

int diff_tables_print(struct diff_row *rows, size_t n_rows, const struct args *args,
                      struct json_out *json)
{
    return args_has(args, "stat") ? print_stat(rows, n_rows, args, json)
                                  : print_long(rows, n_rows, args);
}
