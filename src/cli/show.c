/* SPDX-License-Identifier: MIT */
/*
 * weightfs show: description, statistics, histogram and corner values of tensors, or the elements
 * of a slice.
 */
#include "cli/args.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "cli/survey.h"
#include "cli/values.h"
#include "program/print.h"
#include "program/summary.h"
#include "program/terminal.h"
#include "program/threads.h"

#include <weightfs/cleanup.h>
#include <weightfs/json_out.h>
#include <weightfs/tensor.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- one tensor ---- */

enum { N_EDGE = 3 }; /* rows and columns shown at each edge, at most */

/* The first and last few indices of a dimension. */
struct edges {
    uint64_t indices[2 * N_EDGE];
    size_t n;
    bool has_gap;
};

/* What is shown, the same for all tensors. */
struct wish {
    const char *path;
    const struct wfs_catalog *catalog;
    bool is_json, has_percentiles, has_long_histogram;
    const char *slice; /* or NULL */
    size_t n_edge;     /* columns of corners at each edge */
};

struct view {
    const struct wish *wish;
    const struct wfs_tensor *tensor;
    const struct wfs_tensor *values; /* the same, with numbers as elements where it has blocks */
    const char *scale; /* key of the tensor with its scales, which are not applied; NULL: none */
    struct values_summary numbers;
    bool has_percentiles;
    double percentiles[PERCENTILES_N];
    struct edges rows, columns;
    char corners[2 * N_EDGE][2 * N_EDGE][VALUES_TEXT_MAX];
};

static struct edges edges_of(uint64_t n, size_t n_edge)
{
    struct edges edges = {.n = n < 2 * n_edge ? (size_t)n : 2 * n_edge};
    edges.has_gap = n > 2 * n_edge;
    for (size_t i = 0; i < edges.n; i++)
        edges.indices[i] = edges.has_gap && i >= n_edge ? n - 2 * n_edge + i : i;
    return edges;
}

/*
 * Reads the corners of the matrix of the last two dimensions, with all other indices 0; fewer
 * dimensions are one row.
 */
static int read_corners(struct view *view)
{
    const struct wfs_shape *shape = &view->values->shape;
    const bool is_flat = view->values->dtype == WFS_OPAQUE || shape->rank < 2;
    const uint64_t n_elems = values_n_elems(view->values);
    if (n_elems == 0)
        return 0;
    const uint64_t n_columns = is_flat ? n_elems : shape->dims[shape->rank - 1];
    view->columns = edges_of(n_columns, view->wish->n_edge);
    view->rows = edges_of(is_flat ? 1 : shape->dims[shape->rank - 2], N_EDGE);
    int result = 0;
    for (size_t i = 0; i < view->rows.n && result == 0; i++) {
        for (size_t j = 0; j < view->columns.n && result == 0; j++) {
            const uint64_t at = view->rows.indices[i] * n_columns + view->columns.indices[j];
            result = values_format(view->values, at, view->wish->is_json, view->corners[i][j]);
        }
    }
    return result;
}

/* Reads everything that needs the bytes, before anything is printed. */
static int measure(struct view *view)
{
    const unsigned n_passes =
        2 + (view->wish->has_percentiles ? percentiles_n_passes(view->values) : 0);
    struct progress progress;
    struct team team;
    const struct wfs_io io = {.team = &team.team};
    int result = read_corners(view);
    if (result < 0)
        return result;
    progress_start(&progress, "reading", view->values->n_bytes * n_passes);
    team_start(&team);
    result = values_summarise(&io, view->values, &progress, &view->numbers);
    if (result == 0 && view->wish->has_percentiles && view->numbers.has_histogram) {
        result =
            percentiles_find(&io, view->values, view->numbers.stats.n_finite, view->percentiles);
        view->has_percentiles = result == 0;
    }
    team_end(&team);
    progress_end(&progress);
    return result;
}

/* ---- JSON ---- */

static void json_percentiles(struct json_out *out, const struct view *view)
{
    if (!view->has_percentiles)
        return;
    json_out_open_object(out, "percentiles");
    for (size_t i = 0; i < PERCENTILES_N; i++) {
        char name[8];
        snprintf(name, sizeof(name), "%u", percentiles_ranks[i]);
        json_out_double(out, name, view->percentiles[i]);
    }
    json_out_close(out);
}

static void json_corners(struct json_out *out, const struct view *view)
{
    json_out_open_object(out, "corners");
    json_out_u64s(out, "rows", view->rows.indices, view->rows.n);
    json_out_u64s(out, "columns", view->columns.indices, view->columns.n);
    json_out_open_array(out, "values");
    for (size_t i = 0; i < view->rows.n; i++) {
        json_out_open_array(out, NULL);
        for (size_t j = 0; j < view->columns.n; j++)
            json_out_raw(out, NULL, view->corners[i][j]);
        json_out_close(out);
    }
    json_out_close(out);
    json_out_close(out);
}

static int json_view(const struct view *view, const struct slice *slice, struct json_out *out)
{
    const struct wfs_tensor *tensor = view->tensor;
    const char *quantization = wfs_tensor_attr(tensor, "quantization");
    int code = 0;
    json_out_open(out, NULL, '{', JSON_LINES);
    print_json_tensor(out, tensor);
    json_out_u64(out, "n_elems", values_n_elems(tensor));
    json_out_text(out, "file", input_file_of(view->wish->catalog, tensor));
    json_out_text(out, "source_key", wfs_tensor_origin(tensor));
    json_out_text(out, "changes", tensor->changes);
    if (view->scale != NULL)
        json_out_text(out, "scale", view->scale);
    if (quantization != NULL)
        json_out_text(out, "quantization", quantization);
    if (slice != NULL) {
        code = slice_put_json(slice, out);
    } else {
        summary_put_stats(out, view->numbers.has_stats ? &view->numbers.stats : NULL);
        json_percentiles(out, view);
        values_put_histogram(out, &view->numbers);
        json_corners(out, view);
    }
    json_out_close(out);
    return code;
}

/* ---- text ---- */

static void print_stats(const struct view *view)
{
    const struct wfs_stats *stats = &view->numbers.stats;
    char min[VALUES_TEXT_MAX], max[VALUES_TEXT_MAX];
    values_format_number(view->values, stats->min, min);
    values_format_number(view->values, stats->max, max);
    if (stats->n_finite > 0) {
        printf("min:      %s\nmax:      %s\n", min, max);
        if (isfinite(stats->mean) && isfinite(stats->std))
            printf("mean:     %.9g\nstd:      %.9g\n", stats->mean, stats->std);
        else
            puts("mean:     out of range\nstd:      out of range");
    }
    printf("zeros:    %" PRIu64 "\nNaN:      %" PRIu64 "\n", stats->n_zero, stats->n_nan);
    printf("Inf:      %" PRIu64 " positive, %" PRIu64 " negative\n", stats->n_positive_inf,
           stats->n_negative_inf);
}

/* Four digits are enough here; --json has them all. */
static void format_short(const struct view *view, double number, char text[VALUES_TEXT_MAX])
{
    if (wfs_dtype_kind((enum wfs_dtype)view->values->dtype) == WFS_KIND_FLOAT)
        snprintf(text, VALUES_TEXT_MAX, "%.4g", number);
    else
        values_format_number(view->values, number, text);
}

static void print_percentiles(const struct view *view)
{
    if (!view->has_percentiles)
        return;
    fputs("percentiles:", stdout);
    for (size_t i = 0; i < PERCENTILES_N; i++) {
        char text[VALUES_TEXT_MAX];
        format_short(view, view->percentiles[i], text);
        printf("%s %u%% %s", i > 0 ? "," : "", percentiles_ranks[i], text);
    }
    putchar('\n');
}

/* A bin is one character between the least and the largest number. -ENOMEM. */
static int print_short_histogram(const struct view *view)
{
    autostrbuf struct strbuf spark = {0};
    char min[VALUES_TEXT_MAX], max[VALUES_TEXT_MAX];
    format_short(view, view->numbers.stats.min, min);
    format_short(view, view->numbers.stats.max, max);
    values_add_spark(&spark, view->numbers.counts, VALUES_N_BINS);
    if (spark.has_failed)
        return -ENOMEM;
    printf("histogram: %s %s %s\n", min, spark.bytes, max);
    return 0;
}

static void print_histogram(const struct view *view)
{
    enum { N_WIDTH = 40 };
    const struct wfs_stats *stats = &view->numbers.stats;
    const uint64_t *counts = view->numbers.counts;
    uint64_t most = 1;
    for (size_t i = 0; i < VALUES_N_BINS; i++)
        most = counts[i] > most ? counts[i] : most;
    puts("histogram:");
    for (size_t i = 0; i < VALUES_N_BINS; i++) {
        const double part = (double)i / VALUES_N_BINS;
        const double from = stats->min * (1 - part) + stats->max * part;
        const double share = (double)counts[i] / (double)most;
        const int width = counts[i] > 0 ? (int)(share * (N_WIDTH - 1)) + 1 : 0;
        printf("  from %-12.5g %-*.*s %" PRIu64 "\n", from, N_WIDTH, width,
               "########################################", counts[i]);
    }
}

static void print_row(const struct view *view, size_t i)
{
    fputs(" ", stdout);
    for (size_t j = 0; j < view->columns.n; j++) {
        if (view->columns.has_gap && j == view->wish->n_edge)
            fputs("  ...", stdout);
        printf(" %12s", view->corners[i][j]);
    }
    putchar('\n');
}

static void print_corners(const struct view *view)
{
    if (view->rows.n == 0)
        return;
    puts(view->tensor->shape.rank > 2 ? "values of the first matrix:" : "values:");
    for (size_t i = 0; i < view->rows.n; i++) {
        if (view->rows.has_gap && i == N_EDGE)
            puts("            ...");
        print_row(view, i);
    }
}

/* Nothing here applies scales. */
static void print_scale(const struct view *view)
{
    const char *quantization = wfs_tensor_attr(view->tensor, "quantization");
    if (view->scale == NULL && quantization == NULL)
        return;
    fputs("scales:   ", stdout);
    print_escaped(stdout, view->scale != NULL ? view->scale : quantization);
    puts(" (not applied: the numbers are the stored codes)");
}

static void print_description(const struct view *view)
{
    const struct wfs_tensor *tensor = view->tensor;
    fputs("key:      ", stdout);
    print_escaped(stdout, tensor->key);
    fputs("\ndtype:    ", stdout);
    screen_paint(stdout, COLOUR_DTYPE, wfs_dtype_name(tensor->dtype));
    const char *spelt = wfs_tensor_attr(tensor, "dtype");
    if (tensor->dtype == WFS_OPAQUE && spelt != NULL)
        printf(", '%s' in the file", wfs_quote(spelt).text);
    fputs("\nshape:    ", stdout);
    print_shape(stdout, &tensor->shape);
    printf("\nelements: %" PRIu64 "\nbytes:    %" PRIu64 "\n", values_n_elems(tensor),
           tensor->n_bytes);
    if (tensor->changes != NULL) {
        fputs("changes:  ", stdout);
        print_escaped(stdout, tensor->changes);
        putchar('\n');
    }
    print_scale(view);
}

static int print_view(const struct view *view)
{
    int code = 0;
    print_description(view);
    if (view->numbers.has_stats)
        print_stats(view);
    print_percentiles(view);
    if (view->numbers.has_histogram && view->wish->has_long_histogram)
        print_histogram(view);
    else if (view->numbers.has_histogram)
        code = print_short_histogram(view);
    print_corners(view);
    return code;
}

/* ---- the verb ---- */

static enum exit_code show(const struct wish *wish, const struct wfs_tensor *tensor,
                           struct json_out *out)
{
    cleanup(wfs_numbers_done) struct wfs_numbers numbers = {0};
    int code = wfs_numbers_init(&numbers, tensor);
    struct view view = {.wish = wish, .tensor = tensor, .values = numbers.tensor};
    cleanup(slice_done) struct slice slice = {0};
    const enum exit_code exit_code =
        wish->slice != NULL ? slice_parse(&slice, view.values, wish->slice, wish->path) : EXIT_DONE;
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (code == 0 || code == -EOPNOTSUPP)
        code = wfs_catalog_scale_of(wish->catalog, tensor, &view.scale);
    if (code == 0 && wish->slice == NULL)
        code = measure(&view);
    if (code == 0 && wish->is_json) {
        code = json_view(&view, wish->slice != NULL ? &slice : NULL, out);
    } else if (code == 0 && wish->slice != NULL) {
        print_description(&view);
        puts("values:");
        code = slice_print(&slice, screen_width(STDOUT_FILENO));
    } else if (code == 0) {
        code = print_view(&view);
    }
    if (code == -ENOMEM)
        return print_memory(wish->path);
    return code < 0 ? input_read_error(wish->path, tensor, code) : EXIT_DONE;
}

static enum exit_code check_work(const struct wish *wish, const struct wfs_tensor **tensors,
                                 size_t n, bool allows_large)
{
    struct wfs_workload *workload = NULL;
    autofree struct wfs_work *works = calloc(n, sizeof(*works));
    for (size_t i = 0; works != NULL && i < n; i++)
        works[i].tensor = tensors[i];
    const char *advice =
        n > 1 ? "show fewer KEYs at once, or allow it with --large" : "--large allows it";
    const enum exit_code exit_code =
        input_workload(wish->path, works, n, allows_large, advice, &workload);
    wfs_workload_free(workload);
    return exit_code;
}

/* Finds all tensors before any is shown. */
static enum exit_code show_all(const struct wish *wish, const struct args *args)
{
    const size_t n = args->n_operands - 1;
    struct json_out out = {.file = stdout, .spelling = JSON_ASCII};
    autofree const struct wfs_tensor **tensors = calloc(n, sizeof(*tensors));
    enum exit_code exit_code = EXIT_DONE, damaged = EXIT_DONE;
    if (tensors == NULL)
        return print_memory(wish->path);
    for (size_t i = 0; i < n && exit_code == EXIT_DONE; i++)
        exit_code = input_find(wish->catalog, wish->path, args->operands[i + 1], &tensors[i]);
    if (exit_code == EXIT_DONE && wish->slice == NULL)
        exit_code = check_work(wish, tensors, n, args_has(args, "large"));
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (wish->is_json) {
        print_json_start(&out);
        json_out_open_array(&out, "tensors");
    }
    for (size_t i = 0; i < n && exit_code == EXIT_DONE && !ferror(stdout); i++) {
        if (i > 0 && !wish->is_json)
            putchar('\n');
        exit_code = show(wish, tensors[i], &out);
        if (exit_code == EXIT_DAMAGED && wfs_tensor_is_damaged(tensors[i])) {
            damaged = exit_code;
            exit_code = EXIT_DONE;
        }
    }
    if (wish->is_json) {
        json_out_close(&out);
        json_out_close(&out);
    }
    return exit_code != EXIT_DONE ? exit_code : damaged;
}

/* As many columns of corners as a line of a terminal has room for. */
static size_t choose_edge(size_t n_screen)
{
    enum { N_OF_ONE = 26, N_MORE = 6 }; /* columns for one number at each edge; for the gap */
    size_t n = N_EDGE;
    while (n > 1 && n_screen > 0 && n * N_OF_ONE + N_MORE > n_screen)
        n--;
    return n;
}

/* Whether each KEY is the whole key of a tensor; then they are shown one by one. */
static bool are_whole(const struct args *args, const struct wfs_catalog *catalog)
{
    bool is_whole = args->n_operands > 1;
    for (size_t i = 1; i < args->n_operands && is_whole; i++)
        is_whole = input_has(catalog, args->operands[i]);
    return is_whole;
}

/* Returns an option that was given and that is about one tensor, or NULL. */
static const char *option_of_one(const struct args *args)
{
    static const char *const names[] = {"slice", "histogram", "percentiles"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (args_has(args, names[i]))
            return names[i];
    }
    return NULL;
}

/* A table of the tensors that are named, or of all. */
static enum exit_code show_table(const struct wish *wish, const struct args *args)
{
    const char *unmatched = NULL;
    const struct wfs_tensor *none;
    autofree bool *marks = input_select(wish->catalog, args, 1, &unmatched);
    if (marks == NULL)
        return print_memory(wish->path);
    if (unmatched != NULL && strpbrk(unmatched, "*?[") != NULL)
        return input_unmatched(wish->catalog, wish->path, unmatched);
    if (unmatched != NULL)
        return input_find(wish->catalog, wish->path, unmatched, &none);
    const char *of_one = option_of_one(args);
    if (of_one != NULL)
        return print_error(EXIT_USAGE, NULL, "--%s needs the whole key of a tensor", of_one);
    return survey_print(args, wish->catalog, marks);
}

static enum exit_code run_show(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    const bool is_json = args_has(args, "json");
    const size_t n_screen = is_json ? 0 : screen_width(STDOUT_FILENO);
    struct wish wish = {
        .path = args->operands[0],
        .is_json = is_json,
        .has_percentiles = args_has(args, "percentiles") || n_screen > 0,
        .has_long_histogram = args_has(args, "histogram") || n_screen == 0,
        .slice = args_value(args, "slice"),
        .n_edge = choose_edge(n_screen),
    };
    const char *of_one = option_of_one(args);
    if (of_one != NULL && args->n_operands == 1)
        return print_error(EXIT_USAGE, NULL,
                           "missing KEY, which --%s needs; usage: weightfs show SOURCE KEY...",
                           of_one);
    enum exit_code exit_code = survey_check(args);
    if (exit_code == EXIT_DONE)
        exit_code = input_load(args, wish.path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    wish.catalog = catalog;
    const bool is_listed = args_has(args, "csv") || args_has(args, "sort") ||
                           args_has(args, "fold") || args_has(args, "no-fold");
    return are_whole(args, catalog) && !is_listed ? show_all(&wish, args) : show_table(&wish, args);
}

const struct verb verb_show = {
    .operands = "SOURCE [GLOB...]",
    .text = "Print a table of the statistics of all tensors, or of those that a GLOB or the\n"
            "name of a module chooses. On a terminal, equal layers are one line: the mean of\n"
            "their std with the largest deviation from it, and in which of them NaN is. Of\n"
            "a tensor that is named whole, print dtype, shape, statistics and a histogram,\n"
            "and the values at the corners of its first matrix. Statistics, percentiles and\n"
            "histogram ignore NaN and infinities. With --slice, print the elements of a part\n"
            "instead, which is spelled as in numpy: 0, -1, 0:4, ::2, with commas between\n"
            "dimensions. A terminal gets a drawing of each matrix, and its elements where\n"
            "they have room.",
    .has_source = true,
    .options = {{"csv", NULL, "print the table as CSV"},
                {"fold", NULL, "in pipes too, one line for equal layers"},
                {"histogram", NULL, "on a terminal too, a line for each bin"},
                {"json", NULL, "print JSON, as docs/json.md describes it"},
                {"large", NULL, INPUT_LARGE_HELP},
                {"no-fold", NULL, "a line for each tensor"},
                {"percentiles", NULL, "in pipes too, print percentiles"},
                {"slice", "RANGES", "print the elements of a slice, such as 0:4,:"},
                {"sort", "ORDER", "key, none, size, min, max, mean, std, zeros, nan"}},
    .run = run_show,
};
