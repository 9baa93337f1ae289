/* SPDX-License-Identifier: MIT */
/*
 * How two checkpoints differ: which tensors both have, and which of the others are the same under
 * another key; and tables of that. What is in the tensors is compared elsewhere. The largest change
 * comes first: tensors that one checkpoint only has or that cannot be compared, then those whose
 * difference is the largest part of what they were.
 */
#include "cli/comparison.h"
#include "cli/key_tree.h"
#include "cli/table.h"
#include "program/print.h"

#include <weightfs/catalog.h>
#include <weightfs/cleanup.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct wfs_tensor *diff_row_tensor(const struct diff_row *row)
{
    return row->a != NULL ? row->a : row->b;
}

static int compare_keys(const void *a, const void *b)
{
    const struct wfs_tensor *const *one = a, *const *other = b;
    return strcmp((*one)->key, (*other)->key);
}

/* Returns the tensors by key, malloc'ed, or NULL. */
static const struct wfs_tensor **sort_by_key(const struct wfs_catalog *catalog, size_t n)
{
    const struct wfs_tensor **tensors = calloc(n + 1, sizeof(*tensors));
    for (size_t i = 0; i < n && tensors != NULL; i++)
        tensors[i] = wfs_catalog_tensor(catalog, i);
    if (tensors != NULL)
        qsort(tensors, n, sizeof(*tensors), compare_keys);
    return tensors;
}

int diff_rows_make(const struct wfs_catalog *a, const struct wfs_catalog *b, struct diff_row **out,
                   size_t *ret_n)
{
    const size_t n_a = wfs_catalog_n_tensors(a), n_b = b != NULL ? wfs_catalog_n_tensors(b) : 0;
    autofree const struct wfs_tensor **of_a = sort_by_key(a, n_a), **of_b = sort_by_key(b, n_b);
    struct diff_row *rows = calloc(n_a + n_b + 1, sizeof(*rows));
    if (of_a == NULL || of_b == NULL || rows == NULL) {
        free(rows);
        return -ENOMEM;
    }
    *ret_n = 0;
    for (size_t i = 0; i < n_a; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(a, i);
        const struct wfs_tensor **twin = bsearch(&tensor, of_b, n_b, sizeof(*of_b), compare_keys);
        rows[(*ret_n)++] = (struct diff_row){tensor, twin == NULL ? NULL : *twin};
    }
    for (size_t i = 0; i < n_b; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(b, i);
        if (bsearch(&tensor, of_a, n_a, sizeof(*of_a), compare_keys) == NULL)
            rows[(*ret_n)++] = (struct diff_row){NULL, tensor};
    }
    *out = rows;
    return 0;
}

bool diff_row_is_renamed(const struct diff_row *row)
{
    return row->a != NULL && row->b != NULL && row->comparison.n_changed == 0 &&
           strcmp(row->a->key, row->b->key) != 0;
}

/* A tensor that only one of both has. */
struct lone {
    struct diff_row *row;
    const struct wfs_tensor *tensor;
    uint64_t digest;
};

static int by_digest(const void *a, const void *b)
{
    const struct lone *x = a, *y = b;
    if (x->tensor->n_bytes != y->tensor->n_bytes)
        return x->tensor->n_bytes < y->tensor->n_bytes ? -1 : 1;
    if (x->digest != y->digest)
        return x->digest < y->digest ? -1 : 1;
    return order_of_keys(x->tensor->key, y->tensor->key);
}

/* Collects what only A has, or only B, in the order of sizes; malloc'ed, or NULL. */
static struct lone *find_lone(struct diff_row *rows, size_t n_rows, bool is_of_b, size_t *ret_n)
{
    struct lone *lone = calloc(n_rows + 1, sizeof(*lone));
    *ret_n = 0;
    for (size_t i = 0; i < n_rows && lone != NULL; i++) {
        const struct wfs_tensor *tensor = is_of_b ? rows[i].b : rows[i].a;
        if ((is_of_b ? rows[i].a : rows[i].b) != NULL || tensor->n_bytes == 0 ||
            tensor->trouble != NULL || wfs_tensor_is_large(tensor))
            continue;
        lone[(*ret_n)++] = (struct lone){.row = &rows[i], .tensor = tensor};
    }
    if (lone != NULL)
        qsort(lone, *ret_n, sizeof(*lone), by_digest);
    return lone;
}

/* Makes the digests of those that one of n others may be equal to. */
static int digest_lone(struct lone *lone, size_t n, const struct lone *others, size_t n_others,
                       const struct wfs_tensor **ret_failed)
{
    for (size_t i = 0, k = 0; i < n; i++) {
        *ret_failed = lone[i].tensor;
        while (k < n_others && others[k].tensor->n_bytes < lone[i].tensor->n_bytes)
            k++;
        if (k == n_others || others[k].tensor->n_bytes != lone[i].tensor->n_bytes)
            continue;
        const int code = wfs_tensor_digest(lone[i].tensor, &lone[i].digest);
        if (code < 0)
            return code;
    }
    return 0;
}

/* Both are in the order of digests, and equal ones in that of keys. */
static void pair(struct lone *of_a, size_t n_a, struct lone *of_b, size_t n_b)
{
    for (size_t i = 0, k = 0; i < n_a && k < n_b;) {
        const struct wfs_tensor *a = of_a[i].tensor, *b = of_b[k].tensor;
        const bool is_less =
            a->n_bytes != b->n_bytes ? a->n_bytes < b->n_bytes : of_a[i].digest < of_b[k].digest;
        const bool is_same = a->n_bytes == b->n_bytes && of_a[i].digest == of_b[k].digest;
        if (is_same && comparison_is_alike(a, b)) {
            of_a[i].row->b = b;
            of_b[k].row->b = NULL; /* neither */
        }
        i += is_same || is_less;
        k += is_same || !is_less;
    }
}

static int by_name(const void *a, const void *b)
{
    const struct lone *x = a, *y = b;
    return strcmp(x->tensor->key, y->tensor->key);
}

static int by_from(const void *a, const void *b)
{
    const struct wfs_patch_rename *x = a, *y = b;
    return strcmp(x->from, y->from);
}

/* The renames are in order. */
static void pair_known(struct lone *of_a, size_t n_a, struct lone *of_b, size_t n_b,
                       const struct wfs_patch_rename *renames, size_t n_renames)
{
    qsort(of_b, n_b, sizeof(*of_b), by_name);
    for (size_t i = 0; i < n_a; i++) {
        const struct wfs_patch_rename wanted = {.from = of_a[i].tensor->key};
        const struct wfs_patch_rename *rename =
            bsearch(&wanted, renames, n_renames, sizeof(*renames), by_from);
        const struct wfs_tensor target = {.key = rename != NULL ? rename->to : ""};
        const struct lone of_target = {.tensor = &target};
        struct lone *twin = bsearch(&of_target, of_b, n_b, sizeof(*of_b), by_name);
        if (rename == NULL || twin == NULL || !comparison_is_alike(of_a[i].tensor, twin->tensor))
            continue;
        of_a[i].row->b = twin->tensor;
        twin->row->b = NULL; /* neither */
    }
}

/* Finds renames by the digests of what only one has. */
static int pair_equal(struct lone *of_a, size_t n_a, struct lone *of_b, size_t n_b,
                      const struct wfs_tensor **ret_failed)
{
    int code = digest_lone(of_a, n_a, of_b, n_b, ret_failed);
    if (code == 0)
        code = digest_lone(of_b, n_b, of_a, n_a, ret_failed);
    if (code < 0)
        return code;
    qsort(of_a, n_a, sizeof(*of_a), by_digest);
    qsort(of_b, n_b, sizeof(*of_b), by_digest);
    pair(of_a, n_a, of_b, n_b);
    return 0;
}

int diff_rows_pair(struct diff_row *rows, size_t *n_rows, const struct wfs_patch_rename *renames,
                   size_t n_renames, const struct wfs_tensor **ret_failed)
{
    size_t n_a, n_b, n_kept = 0;
    *ret_failed = NULL;
    autofree struct lone *of_a = find_lone(rows, *n_rows, false, &n_a);
    autofree struct lone *of_b = find_lone(rows, *n_rows, true, &n_b);
    if (of_a == NULL || of_b == NULL)
        return -ENOMEM;
    const int code = renames == NULL ? pair_equal(of_a, n_a, of_b, n_b, ret_failed) : 0;
    if (code < 0)
        return code;
    if (renames != NULL)
        pair_known(of_a, n_a, of_b, n_b, renames, n_renames);
    for (size_t i = 0; i < *n_rows; i++) {
        if (rows[i].a != NULL || rows[i].b != NULL)
            rows[n_kept++] = rows[i];
    }
    *n_rows = n_kept;
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return order_of_keys(diff_row_tensor(a)->key, diff_row_tensor(b)->key);
}

void diff_rows_sort(struct diff_row *rows, size_t n_rows)
{
    qsort(rows, n_rows, sizeof(*rows), by_key);
}

/* ---- tables ---- */

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
    const bool is_comparable = comparison->has_content || table->form == TABLE_TABS;
    const enum screen_colour colour = row->b == NULL   ? COLOUR_REMOVED
                                      : row->a == NULL ? COLOUR_ADDED
                                                       : COLOUR_CHANGED;
    struct strbuf key = {0};
    strbuf_puts(&key, diff_row_tensor(row)->key);
    if (is_renamed)
        strbuf_printf(&key, " -> %s", row->b->key);
    table_name(table, colour, key.has_failed ? NULL : key.bytes);
    strbuf_done(&key);
    table_text(table, colour,
               row->b == NULL                                       ? "removed"
               : row->a == NULL                                     ? "added"
               : is_renamed                                         ? "renamed"
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
}

static int print_long(struct diff_row *rows, size_t n_rows, const struct args *args)
{
    auto_table struct table table;
    if (n_rows > 0)
        qsort(rows, n_rows, sizeof(*rows),
              is_sorted_by(args, "change", "change") ? by_change : by_key);
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
    total->n_changed +=
        row->a != NULL && row->b != NULL && !row->is_equal && !diff_row_is_renamed(row);
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
