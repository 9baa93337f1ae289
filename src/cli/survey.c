/* SPDX-License-Identifier: MIT */
/*
 * Several tensors are read at a time, and what was counted in each is kept; rows are made when all
 * are read, as they may be folded and sorted.
 */
#include "cli/survey.h"

#include "cli/input.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/values.h"
#include "program/key_tree.h"
#include "program/threads.h"
#include "program/summary.h"

#include <weightfs/array.h>
#include <weightfs/tensor.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_LEVELS = 4, N_SPARK = 8 };

/* Copies of what is in a folded directory. */
struct level {
    size_t n_number; /* bytes of the key before the number in which they differ */
    uint64_t n_copies;
    size_t stride; /* tensors of a copy */
};

/* One tensor, or those of equal layers: each of a level with each of the next. */
struct row {
    size_t start; /* the first tensor */
    unsigned n_levels;
    struct level levels[N_LEVELS];
    double order; /* the largest first, NaN last */
};

/* What was counted in all tensors of a row: extremes, means, sums. */
struct total {
    struct values_summary of;
    double spread; /* of the std of one from the mean, at most */
};

struct survey {
    const struct args *args;
    const struct wfs_catalog *catalog;
    struct key_tree tree;
    struct values_summary *results; /* of each tensor of the tree */
    struct progress progress;
    struct pool pool;
    struct row *rows;
    size_t n_rows, n_room;
    enum exit_code exit_code; /* of tensors that cannot be read */
};

#define auto_survey cleanup(survey_done)

static void survey_done(struct survey *survey)
{
    free(survey->tree.tensors);
    free(survey->results);
    free(survey->rows);
}

/* ---- reading ---- */

static struct survey *survey_of(struct pool *pool)
{
    return (struct survey *)((char *)pool - offsetof(struct survey, pool));
}

static int make(struct pool *pool, size_t i, void *result)
{
    struct survey *survey = survey_of(pool);
    return values_summarise(&pool->io, survey->tree.tensors[i], &survey->progress, result);
}

static int keep(struct pool *pool, size_t i, const void *result)
{
    survey_of(pool)->results[i] = *(const struct values_summary *)result;
    return 0;
}

static int skip(struct pool *pool, size_t i, int code)
{
    struct survey *survey = survey_of(pool);
    return input_skip(survey->args->operands[0], survey->tree.tensors[i], code, &survey->exit_code);
}

static enum exit_code read_all(struct survey *survey)
{
    const char *path = survey->args->operands[0];
    const size_t n = survey->tree.n_tensors;
    struct wfs_workload *workload = NULL;
    autofree struct wfs_work *works = calloc(n + 1, sizeof(*works));
    for (size_t i = 0; works != NULL && i < n; i++)
        works[i].tensor = survey->tree.tensors[i];
    enum exit_code exit_code = input_workload(path, works, n, args_has(survey->args, "large"),
                                              INPUT_CHOOSE_FEWER, &workload);
    if (exit_code != EXIT_DONE) {
        wfs_workload_free(workload);
        return exit_code;
    }
    survey->pool = (struct pool){.workload = workload,
                                 .n = n,
                                 .n_result = sizeof(*survey->results),
                                 .make = make,
                                 .visit = keep,
                                 .fail = skip};
    const uint64_t n_shown = wfs_workload_n_shown(workload);
    progress_start(&survey->progress, "reading", input_add(n_shown, n_shown)); /* twice */
    const int code = pool_run(&survey->pool);
    progress_end(&survey->progress);
    wfs_workload_free(workload);
    return code == -ENOMEM ? print_memory(path) : code < 0 ? survey->exit_code : EXIT_DONE;
}

/* ---- rows ---- */

/* Returns the number of tensors of a row, and the place of one of them in the tree. */
static uint64_t n_copies(const struct row *row)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < row->n_levels; i++)
        n *= row->levels[i].n_copies;
    return n;
}

static size_t copy_at(const struct row *row, uint64_t n)
{
    size_t at = row->start;
    for (unsigned i = row->n_levels; i-- > 0; n /= row->levels[i].n_copies)
        at += n % row->levels[i].n_copies * row->levels[i].stride;
    return at;
}

/* Adds what was counted in one of n tensors that have numbers, and equally many elements. */
static void add_one(struct values_summary *sum, const struct values_summary *one, double n)
{
    struct wfs_stats *to = &sum->stats;
    const struct wfs_stats *from = &one->stats;
    if (from->n_finite > 0) {
        const bool is_first = to->n_finite == 0;
        to->min = is_first || from->min < to->min ? from->min : to->min;
        to->max = is_first || from->max > to->max ? from->max : to->max;
        to->mean += from->mean / n;
        to->std += from->std / n;
    }
    sum->has_stats |= one->has_stats;
    sum->has_histogram |= one->has_histogram;
    wfs_stats_add_counts(to, from);
    for (size_t i = 0; i < VALUES_N_BINS; i++)
        sum->counts[i] += one->counts[i];
}

static struct total total_of(const struct survey *survey, const struct row *row)
{
    const uint64_t n = n_copies(row);
    struct total total = {0};
    double n_counted = 0;
    for (uint64_t i = 0; i < n; i++)
        n_counted += survey->results[copy_at(row, i)].stats.n_finite > 0;
    for (uint64_t i = 0; i < n; i++)
        add_one(&total.of, &survey->results[copy_at(row, i)], n_counted);
    for (uint64_t i = 0; i < n; i++) {
        const struct wfs_stats *stats = &survey->results[copy_at(row, i)].stats;
        const double distance = stats->n_finite > 0 ? fabs(stats->std - total.of.stats.std) : 0;
        total.spread = distance > total.spread ? distance : total.spread;
    }
    return total;
}

/* A directory that is open while the tree is walked. */
struct frame {
    size_t end, next, n_prefix; /* of its tensors; what comes after it; of its keys */
    unsigned n_levels;
};

struct walk {
    struct frame *frames;
    size_t n_frames, n_room;
    struct level levels[N_LEVELS];
    size_t i; /* the next tensor */
};

/* Adds a row, or opens a directory, for what is next. -ENOMEM. */
static int walk_on(struct survey *survey, struct walk *walk)
{
    const struct frame frame = walk->frames[walk->n_frames - 1];
    const struct key_run run =
        key_tree_run(&survey->tree, walk->i, frame.end, frame.n_prefix, frame.n_levels < N_LEVELS);
    const size_t n_one = run.end_one - run.start;
    struct row row = {.start = run.start, .n_levels = frame.n_levels};
    if (run.n_copies > 1)
        walk->levels[row.n_levels++] = (struct level){run.n_number, run.n_copies, n_one};
    if (n_one > 1) {
        if (array_reserve(&walk->frames, sizeof(*walk->frames), walk->n_frames, 1, &walk->n_room) <
            0)
            return -ENOMEM;
        walk->frames[walk->n_frames++] =
            (struct frame){run.end_one, run.end, run.n_prefix, row.n_levels};
        return 0;
    }
    if (array_reserve(&survey->rows, sizeof(row), survey->n_rows, 1, &survey->n_room) < 0)
        return -ENOMEM;
    memcpy(row.levels, walk->levels, sizeof(row.levels));
    survey->rows[survey->n_rows++] = row;
    walk->i = run.end;
    return 0;
}

/* Makes a row for each tensor. -ENOMEM. */
static int make_rows(struct survey *survey)
{
    survey->rows = calloc(survey->tree.n_tensors + 1, sizeof(*survey->rows));
    for (size_t i = 0; survey->rows != NULL && i < survey->tree.n_tensors; i++)
        survey->rows[survey->n_rows++].start = i;
    return survey->rows != NULL ? 0 : -ENOMEM;
}

/* Makes the rows of a sorted tree, equal layers together. -ENOMEM. */
static int fold_rows(struct survey *survey)
{
    const size_t n = survey->tree.n_tensors;
    struct walk walk = {0};
    int code = array_reserve(&walk.frames, sizeof(*walk.frames), 0, 1, &walk.n_room);
    if (code == 0)
        walk.frames[walk.n_frames++] = (struct frame){.end = n, .next = n};
    while (code == 0 && walk.n_frames > 0) {
        const struct frame *frame = &walk.frames[walk.n_frames - 1];
        if (walk.i < frame->end) {
            code = walk_on(survey, &walk);
        } else {
            walk.i = frame->next;
            walk.n_frames--;
        }
    }
    free(walk.frames);
    return code;
}

/* ---- order ---- */

enum order {
    BY_KEY,
    BY_NONE,
    BY_SIZE,
    BY_MIN,
    BY_MAX,
    BY_MEAN,
    BY_STD,
    BY_ZEROS,
    BY_NAN,
    N_ORDERS
};

static const char *const order_names[N_ORDERS] = {"key",  "none", "size",  "min", "max",
                                                  "mean", "std",  "zeros", "nan"};

/* Returns the order that --sort names, else that of keys for people and of the file for programs;
 * N_ORDERS if it names none. */
static enum order order_of(const struct args *args)
{
    const char *name = args_value(args, "sort");
    const bool is_read =
        screen_width(STDOUT_FILENO) > 0 && !args_has(args, "json") && !args_has(args, "csv");
    if (name == NULL)
        return is_read || args_has(args, "fold") ? BY_KEY : BY_NONE;
    enum order order = BY_KEY;
    while (order < N_ORDERS && strcmp(name, order_names[order]) != 0)
        order++;
    return order;
}

static bool folds(const struct args *args)
{
    const bool is_read =
        screen_width(STDOUT_FILENO) > 0 && !args_has(args, "json") && !args_has(args, "csv");
    return args_has(args, "fold") ||
           (is_read && !args_has(args, "no-fold") && order_of(args) != BY_NONE);
}

static double order_value(const struct survey *survey, const struct row *row, enum order order)
{
    const struct total total = total_of(survey, row);
    const struct wfs_stats *stats = &total.of.stats;
    const double n_bytes = (double)survey->tree.tensors[row->start]->n_bytes;
    const double values[N_ORDERS] = {[BY_SIZE] = n_bytes * (double)n_copies(row),
                                     [BY_MIN] = stats->min,
                                     [BY_MAX] = stats->max,
                                     [BY_MEAN] = stats->mean,
                                     [BY_STD] = stats->std,
                                     [BY_ZEROS] = (double)stats->n_zero,
                                     [BY_NAN] = (double)stats->n_nan};
    const bool is_known =
        order < BY_MIN || (order > BY_STD ? total.of.has_stats : stats->n_finite > 0);
    return is_known ? values[order] : NAN;
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (isnan(x->order) || isnan(y->order))
        return isnan(x->order) - isnan(y->order);
    if (x->order != y->order)
        return x->order > y->order ? -1 : 1;
    return (x->start > y->start) - (x->start < y->start);
}

/* ---- printing ---- */

static const struct table_column screen_columns_of[] = {
    {.heading = "key", .is_key = true},
    {.heading = "dtype"},
    {.heading = "std", .is_right = true, .stays = true},
    {.heading = "values", .stays = true},
    {.heading = "", .n_least = 10, .stays = true},
    {.heading = "shape"},
    {.heading = "mean", .is_right = true},
    {.heading = "min", .is_right = true},
    {.heading = "max", .is_right = true},
    {.heading = "zeros", .is_right = true},
    {.heading = "NaN", .is_right = true},
};

/* Of pipes and of CSV. */
static const struct table_column exact_columns[] = {
    {.heading = "key", .member = "key"},
    {.heading = "dtype", .member = "dtype"},
    {.heading = "shape", .member = "shape"},
    {.heading = "min", .member = "min"},
    {.heading = "max", .member = "max"},
    {.heading = "mean", .member = "mean"},
    {.heading = "std", .member = "std"},
    {.heading = "zeros", .member = "zeros"},
    {.heading = "NaN", .member = "nan"},
    {.heading = "infinite", .member = "infinite"},
    {.heading = "values"},
};

enum {
    N_SCREEN = sizeof(screen_columns_of) / sizeof(screen_columns_of[0]),
    N_EXACT = sizeof(exact_columns) / sizeof(exact_columns[0]),
};

/* Adds the key with the numbers of all copies: "layer.{0..11}.weight". */
static void add_key(const struct survey *survey, const struct row *row, struct strbuf *out)
{
    const char *key = survey->tree.tensors[row->start]->key;
    size_t at = 0;
    for (unsigned i = 0; i < row->n_levels; i++) {
        const struct level *level = &row->levels[i];
        const uint64_t number = strtoull(key + level->n_number, NULL, 10);
        strbuf_escape(out, key + at, level->n_number - at);
        strbuf_printf(out, "{%" PRIu64 "..%" PRIu64 "}", number, number + level->n_copies - 1);
        at = level->n_number + key_tree_component(key, level->n_number);
    }
    strbuf_escape(out, key + at, strlen(key + at));
}

/* Adds the numbers in which a copy differs from the others, with dots between them. */
static void add_numbers(const struct survey *survey, const struct row *row, uint64_t n,
                        struct strbuf *out)
{
    const char *key = survey->tree.tensors[copy_at(row, n)]->key;
    const char *first = survey->tree.tensors[row->start]->key;
    size_t n_shift = 0; /* the numbers before may have more digits than those of the first copy */
    for (unsigned i = 0; i < row->n_levels; i++) {
        const size_t at = row->levels[i].n_number;
        const size_t n_digits = key_tree_component(key, at + n_shift);
        strbuf_printf(out, "%s%.*s", i > 0 ? "." : "", (int)n_digits, key + at + n_shift);
        n_shift += n_digits - key_tree_component(first, at);
    }
}

/* What to look for in each copy. */
static bool has_nan(const struct survey *survey, size_t i)
{
    return survey->results[i].stats.n_nan > 0;
}

static bool has_infinite(const struct survey *survey, size_t i)
{
    const struct wfs_stats *stats = &survey->results[i].stats;
    return stats->n_positive_inf + stats->n_negative_inf > 0;
}

static bool is_unreadable(const struct survey *survey, size_t i)
{
    return wfs_tensor_is_damaged(survey->tree.tensors[i]);
}

/* Adds "NaN in 5, 7 and 2 more", or "NaN" where all copies have some. */
static void add_note(const struct survey *survey, const struct row *row, const char *what,
                     bool (*is_so)(const struct survey *survey, size_t i), struct strbuf *out)
{
    enum { N_NAMED = 3 };
    const uint64_t n = n_copies(row);
    uint64_t n_so = 0, n_named = 0;
    for (uint64_t i = 0; i < n; i++)
        n_so += is_so(survey, copy_at(row, i));
    if (n_so == 0)
        return;
    strbuf_printf(out, "%s%s", out->n_bytes > 0 ? "; " : "", what);
    for (uint64_t i = 0; i < n && n_so < n && n_named < N_NAMED; i++) {
        if (!is_so(survey, copy_at(row, i)))
            continue;
        strbuf_puts(out, n_named++ == 0 ? " in " : ", ");
        add_numbers(survey, row, i, out);
    }
    if (n_named > 0 && n_so > n_named)
        strbuf_printf(out, " and %" PRIu64 " more", n_so - n_named);
}

/* Three digits for a screen, nine for a pipe, all for CSV. */
static void put_number(struct table *table, const struct total *total, double number, bool is_whole)
{
    char text[VALUES_TEXT_MAX];
    const double most = table->form == TABLE_SCREEN ? 1e6 : 1e15;
    if (total->of.stats.n_finite == 0 || !is_whole || fabs(number) >= most) {
        table_number(table, total->of.stats.n_finite > 0 ? number : NAN);
        return;
    }
    snprintf(text, sizeof(text), "%.0f", number);
    table_text(table, COLOUR_NONE, text);
}

static void put_count(struct table *table, const struct total *total, uint64_t n)
{
    if (!total->of.has_stats)
        table_text(table, COLOUR_NONE, NULL);
    else if (table->form == TABLE_SCREEN)
        table_count(table, n);
    else
        table_exact(table, &n);
}

static void put_std(struct table *table, const struct total *total)
{
    struct strbuf text = {0};
    if (total->spread == 0 || total->of.stats.n_finite == 0) {
        put_number(table, total, total->of.stats.std, false);
        return;
    }
    strbuf_printf(&text, "%.3g ±%.1g", total->of.stats.std, total->spread);
    table_built(table, COLOUR_NONE, &text);
}

static void put_shape(struct table *table, const struct survey *survey, const struct row *row)
{
    struct strbuf text = {0};
    if (row->n_levels > 0)
        strbuf_printf(&text, "%" PRIu64 " x ", n_copies(row));
    print_add_shape(&text, &survey->tree.tensors[row->start]->shape);
    table_built(table, COLOUR_NONE, &text);
}

static void put_spark(struct table *table, const struct total *total)
{
    struct strbuf text = {0};
    if (total->of.has_histogram)
        values_add_spark(&text, total->of.counts, N_SPARK);
    table_built(table, COLOUR_NONE, &text);
}

static void put_note(struct table *table, const struct survey *survey, const struct row *row)
{
    struct strbuf text = {0};
    add_note(survey, row, "NaN", has_nan, &text);
    add_note(survey, row, "infinite", has_infinite, &text);
    add_note(survey, row, "unreadable", is_unreadable, &text);
    table_built(table, COLOUR_WARNING, &text);
}

static void add_row(struct table *table, const struct survey *survey, const struct row *row)
{
    struct strbuf key = {0};
    const struct total total = total_of(survey, row);
    const struct wfs_stats *stats = &total.of.stats;
    const enum wfs_dtype dtype = (enum wfs_dtype)survey->tree.tensors[row->start]->dtype;
    const bool is_whole = wfs_dtype_kind(dtype) != WFS_KIND_FLOAT;
    const bool is_screen = table->form == TABLE_SCREEN;
    add_key(survey, row, &key);
    table_built(table, COLOUR_NONE, &key);
    table_text(table, COLOUR_DTYPE, wfs_dtype_name(dtype));
    if (is_screen) {
        put_std(table, &total);
        put_spark(table, &total);
        put_note(table, survey, row);
    }
    put_shape(table, survey, row);
    if (is_screen)
        put_number(table, &total, stats->mean, false);
    put_number(table, &total, stats->min, is_whole);
    put_number(table, &total, stats->max, is_whole);
    if (!is_screen) {
        put_number(table, &total, stats->mean, false);
        put_std(table, &total);
    }
    put_count(table, &total, stats->n_zero);
    put_count(table, &total, stats->n_nan);
    if (!is_screen) {
        put_count(table, &total, stats->n_positive_inf + stats->n_negative_inf);
        put_spark(table, &total);
    }
}

/* The lines below the table on a terminal. */
static void print_total(const struct survey *survey, const struct table *table)
{
    const struct key_tree *tree = &survey->tree;
    uint64_t n_nan = 0, n_infinite = 0;
    for (size_t i = 0; i < tree->n_tensors; i++) {
        n_nan += has_nan(survey, i);
        n_infinite += has_infinite(survey, i);
    }
    printf("%s, %s elements; NaN in %" PRIu64 ", infinities in %" PRIu64 "\n",
           wfs_count(tree->n_tensors, "tensor").text,
           amount_of_count(key_tree_n_elems(tree, 0, tree->n_tensors)).text, n_nan, n_infinite);
    table_print_dropped(table);
}

static int print_table(const struct survey *survey)
{
    auto_table struct table table;
    const bool is_screen = screen_width(STDOUT_FILENO) > 0 && !args_has(survey->args, "csv");
    table_start(&table, is_screen ? screen_columns_of : exact_columns,
                is_screen ? N_SCREEN : N_EXACT, survey->args);
    for (size_t i = 0; i < survey->n_rows && !ferror(stdout); i++)
        add_row(&table, survey, &survey->rows[i]);
    const int code = table_print(&table);
    if (is_screen && code >= 0)
        print_total(survey, &table);
    return code < 0 ? code : 0;
}

static void print_as_json(const struct survey *survey)
{
    struct json_out out = {.file = stdout, .spelling = JSON_ASCII};
    print_json_start(&out);
    json_out_open_array(&out, "tensors");
    for (size_t i = 0; i < survey->n_rows && !ferror(stdout); i++) {
        const size_t at = survey->rows[i].start;
        json_out_open_object(&out, NULL);
        print_json_tensor(&out, survey->tree.tensors[at]);
        json_out_u64(&out, "n_elems", values_n_elems(survey->tree.tensors[at]));
        summary_put_stats(&out, survey->results[at].has_stats ? &survey->results[at].stats : NULL);
        values_put_histogram(&out, &survey->results[at]);
        json_out_close(&out);
    }
    json_out_close(&out);
    json_out_close(&out);
}

/* ---- all of it ---- */

enum exit_code survey_check(const struct args *args)
{
    const bool is_data = args_has(args, "json") || args_has(args, "csv");
    if (args_has(args, "json") && args_has(args, "csv"))
        return print_error(EXIT_USAGE, NULL, "--json cannot be combined with --csv");
    if (args_has(args, "fold") && (args_has(args, "no-fold") || is_data))
        return print_error(EXIT_USAGE, NULL, "--fold cannot be combined with --%s",
                           args_has(args, "no-fold") ? "no-fold"
                           : args_has(args, "json")  ? "json"
                                                     : "csv");
    if (order_of(args) == N_ORDERS)
        return print_error(
            EXIT_USAGE, NULL,
            "--sort must be key, none, size, min, max, mean, std, zeros or nan, not '%s'",
            wfs_quote(args_value(args, "sort")).text);
    if (args_has(args, "fold") && order_of(args) == BY_NONE)
        return print_error(EXIT_USAGE, NULL, "--fold cannot be combined with --sort=none");
    return EXIT_DONE;
}

enum exit_code survey_print(const struct args *args, const struct wfs_catalog *catalog,
                            const bool *marks)
{
    const size_t n = wfs_catalog_n_tensors(catalog);
    const enum order order = order_of(args);
    auto_survey struct survey survey = {.args = args, .catalog = catalog};
    survey.tree.tensors = calloc(n + 1, sizeof(*survey.tree.tensors));
    survey.results = calloc(n + 1, sizeof(*survey.results));
    if (survey.tree.tensors == NULL || survey.results == NULL)
        return print_memory(args->operands[0]);
    for (size_t i = 0; i < n; i++) {
        if (marks[i])
            survey.tree.tensors[survey.tree.n_tensors++] = wfs_catalog_tensor(catalog, i);
    }
    if (order != BY_NONE)
        key_tree_sort(&survey.tree);
    const enum exit_code exit_code = read_all(&survey);
    if (exit_code != EXIT_DONE)
        return exit_code;
    int code = folds(args) ? fold_rows(&survey) : make_rows(&survey);
    for (size_t i = 0; code == 0 && order > BY_NONE && i < survey.n_rows; i++)
        survey.rows[i].order = order_value(&survey, &survey.rows[i], order);
    if (code == 0 && survey.n_rows > 0)
        qsort(survey.rows, survey.n_rows, sizeof(*survey.rows), compare_rows);
    if (code == 0 && args_has(args, "json"))
        print_as_json(&survey);
    else if (code == 0)
        code = print_table(&survey);
    return code < 0 ? print_memory(args->operands[0]) : survey.exit_code;
}
