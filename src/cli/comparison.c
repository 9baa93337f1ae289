/* SPDX-License-Identifier: MIT */
/*
 * A long double holds every element exactly, integers of 64 bits among them. Pieces with equal
 * bytes are equal without being decoded. In the tables, the largest change comes first: tensors
 * that one checkpoint only has or that cannot be compared, then those whose difference is the
 * largest part of what they were.
 */
#include "cli/comparison.h"

#include "cli/key_tree.h"
#include "cli/table.h"
#include "cli/values.h"
#include "program/print.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_PIECE = 1 << 16 }; /* elements; whole bytes of every dtype */

/* One of the two tensors, and the piece of it that is compared. */
struct side {
    struct wfs_distinct distinct;
    const struct wfs_tensor *tensor; /* of the distinct elements */
    unsigned n_bits;
    bool is_complex;
    bool is_wide; /* integers of 64 bits, which a double does not hold: they are not decoded */
    uint8_t *bytes;
    double *decoded; /* two for a complex element */
};

static bool has_numbers(const struct wfs_tensor *tensor)
{
    static const uint8_t raw[] = {WFS_QI8, WFS_QU8, WFS_QI32};
    if (wfs_dtype_has_blocks((enum wfs_dtype)tensor->dtype))
        return !tensor->stored.is_big_endian;
    return wfs_dtype_kind((enum wfs_dtype)tensor->dtype) != WFS_KIND_BITS &&
           memchr(raw, tensor->dtype, sizeof(raw)) == NULL;
}

bool comparison_is_one_quantization(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const char *one = wfs_tensor_attr(a, "quantization"),
               *other = wfs_tensor_attr(b, "quantization");
    return one == NULL || other == NULL ? one == other : strcmp(one, other) == 0;
}

bool comparison_is_alike(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return a->dtype == b->dtype && wfs_shape_is_equal(&a->shape, &b->shape) &&
           comparison_is_one_quantization(a, b);
}

/* ---- one piece ---- */

static uint64_t load_integer(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static void decode(struct side *side, size_t n_elems)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)side->tensor->dtype;
    if (!side->is_wide)
        wfs_dtype_decode(side->is_complex ? wfs_dtype_part(dtype) : dtype, side->bytes,
                         side->is_complex ? 2 * n_elems : n_elems, side->decoded);
}

/* An element as real and imaginary part. */
struct number {
    long double re, im;
};

static struct number number_at(const struct side *side, size_t i)
{
    if (side->is_complex)
        return (struct number){side->decoded[2 * i], side->decoded[2 * i + 1]};
    if (!side->is_wide)
        return (struct number){side->decoded[i], 0};
    const uint64_t value = load_integer(side->bytes + 8 * i);
    return (struct number){
        side->tensor->dtype == WFS_U64 ? (long double)value : (long double)(int64_t)value, 0};
}

static bool is_nan(struct number a)
{
    return isnan(a.re) || isnan(a.im);
}

static bool has_same_bits(const struct side *a, const struct side *b, size_t i)
{
    const size_t n = a->n_bits / 8;
    if (n == 0) /* types of less than a byte have zeros of two kinds and one NaN at most */
        return signbit(a->decoded[i]) == signbit(b->decoded[i]);
    return memcmp(a->bytes + n * i, b->bytes + n * i, n) == 0;
}

static void add_difference(struct number a, struct number b, struct comparison *total)
{
    const long double abs = hypotl(a.re == b.re ? 0 : a.re - b.re, a.im == b.im ? 0 : a.im - b.im);
    const long double size = fmaxl(hypotl(a.re, a.im), hypotl(b.re, b.im));
    const long double rel = isinf(size) ? (long double)INFINITY : size > 0 ? abs / size : 0;
    if (abs > total->max_abs)
        total->max_abs = (double)abs;
    if (rel > total->max_rel)
        total->max_rel = (double)rel;
}

/* first: the number of the first element of the piece. */
static void count_numbers(const struct side *a, const struct side *b, uint64_t first,
                          size_t n_elems, bool is_exact, struct comparison *total)
{
    for (size_t i = 0; i < n_elems; i++) {
        const struct number x = number_at(a, i), y = number_at(b, i);
        const bool is_equal = (x.re == y.re && x.im == y.im) || (is_nan(x) && is_nan(y));
        if (is_equal && (!is_exact || has_same_bits(a, b, i)))
            continue;
        const uint64_t n_times = wfs_distinct_times(&a->distinct, first + i);
        if (n_times == 0)
            continue;
        total->n_changed += n_times;
        if (is_equal)
            continue;
        if (is_nan(x) || is_nan(y))
            total->n_nan += n_times;
        else
            add_difference(x, y, total);
    }
}

static bool is_finite(struct number a)
{
    return isfinite(a.re) && isfinite(a.im);
}

/* Returns true if doubles hold the squares of the elements, and sums of a piece of them. */
static bool is_narrow(const struct side *side)
{
    return !side->is_complex && side->n_bits <= 32;
}

/* The same as measure for a piece whose elements are shown equally often, many times faster. */
static void measure_narrow(const struct side *a, const struct side *b, size_t n_elems,
                           struct measures *total)
{
    double aa = 0, bb = 0, ab = 0, dd = 0;
    const long double n_times = wfs_distinct_times(&a->distinct, 0);
    for (size_t i = 0; i < n_elems; i++) {
        const double x = a->decoded[i], y = b->decoded[i], d = x - y;
        if (!isfinite(x) || !isfinite(y))
            continue;
        aa += x * x;
        bb += y * y;
        ab += x * y;
        dd += d * d;
    }
    total->aa += n_times * aa;
    total->bb += n_times * bb;
    total->ab += n_times * ab;
    total->dd += n_times * dd;
}

static void measure(const struct side *a, const struct side *b, uint64_t first, size_t n_elems,
                    struct measures *total)
{
    for (size_t i = 0; i < n_elems; i++) {
        const struct number x = number_at(a, i), y = number_at(b, i);
        if (!is_finite(x) || !is_finite(y))
            continue;
        const struct number d = {x.re - y.re, x.im - y.im};
        const long double n_times = wfs_distinct_times(&a->distinct, first + i);
        total->aa += n_times * (x.re * x.re + x.im * x.im);
        total->bb += n_times * (y.re * y.re + y.im * y.im);
        total->ab += n_times * (x.re * y.re + x.im * y.im);
        total->dd += n_times * (d.re * d.re + d.im * d.im);
    }
}

static void count_bytes(const struct side *a, const struct side *b, uint64_t first, size_t n_bytes,
                        struct comparison *total)
{
    const unsigned n_bits = wfs_dtype_bits((enum wfs_dtype)a->tensor->dtype);
    const unsigned n_elem = n_bits < 8 ? 1 : n_bits / 8; /* those below a byte are not repeated */
    for (size_t i = 0; i < n_bytes; i++) {
        if (a->bytes[i] != b->bytes[i])
            total->n_changed += wfs_distinct_times(&a->distinct, (first + i) / n_elem);
    }
}

/* ---- both tensors ---- */

static void free_side(struct side *side)
{
    wfs_distinct_done(&side->distinct);
    free(side->bytes);
    free(side->decoded);
}

static bool make_side(struct side *side, const struct wfs_tensor *tensor,
                      const struct wfs_tensor *beside, bool is_number)
{
    if (wfs_distinct_init(NULL, &side->distinct, tensor, beside) < 0)
        return false;
    side->tensor = &side->distinct.tensor;
    side->n_bits = is_number ? wfs_dtype_bits((enum wfs_dtype)tensor->dtype) : 8;
    side->is_complex = wfs_dtype_kind((enum wfs_dtype)tensor->dtype) == WFS_KIND_COMPLEX;
    side->is_wide = tensor->dtype == WFS_I64 || tensor->dtype == WFS_U64;
    side->bytes = malloc((size_t)N_PIECE * side->n_bits / 8);
    if (is_number)
        side->decoded = calloc((size_t)2 * N_PIECE, sizeof(*side->decoded));
    return side->bytes != NULL && (!is_number || side->decoded != NULL);
}

static int read_piece(const struct side *side, uint64_t first, size_t n_elems)
{
    const uint64_t offset = first / 8 * side->n_bits; /* first counts whole pieces */
    const size_t n_bytes = n_elems * side->n_bits / 8;
    const ssize_t n = wfs_tensor_read(side->tensor, offset, side->bytes, n_bytes);
    if (n < 0)
        return (int)n;
    return (size_t)n == n_bytes ? 0 : -EIO;
}

static void compare_piece(struct side *a, struct side *b, uint64_t first, size_t n,
                          struct comparison_options options, struct comparison *ret)
{
    const bool is_one_dtype = a->tensor->dtype == b->tensor->dtype;
    const bool is_same = is_one_dtype && memcmp(a->bytes, b->bytes, n * a->n_bits / 8) == 0;
    const bool has_measures = options.has_measures && ret->has_numbers;
    if (!ret->has_numbers && !is_same)
        count_bytes(a, b, first, n, ret);
    if (!ret->has_numbers || (is_same && !has_measures))
        return;
    const bool is_quick = is_narrow(a) && is_narrow(b) && a->distinct.times == NULL;
    decode(a, n);
    if (!is_same) {
        decode(b, n);
        count_numbers(a, b, first, n, options.is_exact && is_one_dtype, ret);
    }
    if (has_measures && is_quick)
        measure_narrow(a, is_same ? a : b, n, &ret->measures);
    else if (has_measures)
        measure(a, is_same ? a : b, first, n, &ret->measures);
}

static int compare_pieces(struct side *a, struct side *b, struct comparison_options options,
                          struct comparison *ret, bool *ret_is_second)
{
    const uint64_t n_all = ret->has_numbers ? values_n_elems(a->tensor) : a->tensor->n_bytes;
    for (uint64_t first = 0; first < n_all; first += N_PIECE) {
        const uint64_t n_left = n_all - first;
        const size_t n = n_left < N_PIECE ? (size_t)n_left : N_PIECE;
        int code = read_piece(a, first, n);
        *ret_is_second = code == 0;
        if (code == 0)
            code = read_piece(b, first, n);
        if (code < 0)
            return code;
        compare_piece(a, b, first, n, options, ret);
    }
    return 0;
}

bool comparison_has_content(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return has_numbers(a) && has_numbers(b) ? wfs_shape_is_equal(&a->shape, &b->shape)
                                            : comparison_is_alike(a, b) && a->n_bytes == b->n_bytes;
}

int comparison_make(const struct wfs_tensor *a, const struct wfs_tensor *b,
                    struct comparison_options options, struct comparison *ret,
                    const struct wfs_tensor **ret_failed)
{
    const bool is_number = has_numbers(a) && has_numbers(b);
    *ret_failed = NULL;
    *ret =
        (struct comparison){.has_numbers = is_number, .has_content = comparison_has_content(a, b)};
    if (!ret->has_content)
        return 0;
    ret->n_elems = is_number ? values_n_elems(a) : a->n_bytes;
    struct side one = {0}, other = {0};
    cleanup(wfs_numbers_done) struct wfs_numbers of_a = {.tensor = a}, of_b = {.tensor = b};
    int code = is_number ? wfs_numbers_init(&of_a, a) : 0;
    code = is_number && code == 0 ? wfs_numbers_init(&of_b, b) : code;
    if (code == 0)
        code = -ENOMEM;
    if (code == -ENOMEM && make_side(&one, of_a.tensor, of_b.tensor, is_number) &&
        make_side(&other, of_b.tensor, of_a.tensor, is_number)) {
        bool is_second = false;
        code = compare_pieces(&one, &other, options, ret, &is_second);
        *ret_failed = is_second ? b : a;
    }
    free_side(&one);
    free_side(&other);
    return code;
}

/* ---- measures ---- */

double measures_l2(const struct measures *measures)
{
    return (double)sqrtl(measures->dd);
}

double measures_relative(const struct measures *measures)
{
    return measures->dd == 0 ? 0 : (double)sqrtl(measures->dd / measures->aa);
}

double measures_cosine(const struct measures *measures)
{
    const long double cosine = measures->ab / (sqrtl(measures->aa) * sqrtl(measures->bb));
    return (double)(cosine > 1 ? 1 : cosine < -1 ? -1 : cosine);
}

/* ---- tables ---- */

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
    return order_of_keys(diff_row_tensor(a)->key, diff_row_tensor(b)->key);
}

void diff_rows_sort(struct diff_row *rows, size_t n_rows)
{
    qsort(rows, n_rows, sizeof(*rows), by_key);
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
    const enum screen_colour colour = row->b == NULL   ? COLOUR_REMOVED
                                      : row->a == NULL ? COLOUR_ADDED
                                                       : COLOUR_CHANGED;
    table_name(table, colour, diff_row_tensor(row)->key);
    table_text(table, colour, row->b == NULL ? "removed" : row->a == NULL ? "added" : "changed");
    put_number(table, has_numbers, measures_relative(&comparison->measures));
    put_measures(table, has_numbers, &comparison->measures);
    put_number(table, has_numbers && comparison->n_changed > comparison->n_nan,
               comparison->max_abs);
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
    struct table_column columns[N_LONG];
    memcpy(columns, long_columns, sizeof(columns));
    columns[0].n_least = least_name();
    if (n_rows > 0)
        qsort(rows, n_rows, sizeof(*rows),
              is_sorted_by(args, "change", "change") ? by_change : by_key);
    table_start(&table, columns, N_LONG, args);
    for (size_t i = 0; i < n_rows; i++) {
        if (!rows[i].is_equal)
            put_row(&table, &rows[i]);
    }
    const int code = table_print(&table);
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

static void count_row(struct total *total, const struct diff_row *row)
{
    total->n_tensors++;
    total->n_removed += row->b == NULL;
    total->n_added += row->a == NULL;
    total->n_changed += row->a != NULL && row->b != NULL && !row->is_equal;
    const struct measures *more = &row->comparison.measures;
    total->measures.aa += more->aa;
    total->measures.bb += more->bb;
    total->measures.ab += more->ab;
    total->measures.dd += more->dd;
}

static void put_total(struct table *table, const struct total *total, double largest)
{
    const bool has_measures = total->measures.aa > 0 || total->measures.bb > 0;
    const double relative = measures_relative(&total->measures);
    table_text(table, COLOUR_NONE, total->name);
    put_number(table, has_measures, relative);
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
        if (totals[i].n_changed + totals[i].n_removed + totals[i].n_added > 0)
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
static int sum_up(struct modules *modules, const struct diff_row *rows, struct total *totals)
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
            count_row(&totals[i], &rows[k]);
    }
    return 0;
}

static int print_by_module(struct modules *modules, const struct diff_row *rows,
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

static int print_stat(struct diff_row *rows, size_t n_rows, const struct args *args)
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
    return code < 0 ? code : print_by_module(&modules, rows, args);
}

int diff_tables_print(struct diff_row *rows, size_t n_rows, const struct args *args)
{
    return (args_has(args, "stat") ? print_stat : print_long)(rows, n_rows, args);
}
