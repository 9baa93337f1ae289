/* SPDX-License-Identifier: MIT */
/*
 * weightfs show: description, statistics, histogram and corner values of one tensor.
 */
#include "cli/verbs.h"

#include "cli/input.h"
#include "cli/jsonout.h"
#include "cli/progress.h"
#include "cli/percentiles.h"
#include "cli/slice.h"
#include "cli/values.h"
#include "program/print.h"
#include "program/screen.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const struct args_option options[] = {
    {"histogram", NULL, "on a terminal too, a line for each bin"},
    {"json", NULL, "print one JSON object, for several KEYs a list"},
    {"large", NULL, INPUT_LARGE_HELP},
    {"percentiles", NULL, "in pipes too, print percentiles"},
    {"slice", "RANGES", "print the elements of a slice, such as 0:4,:"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "show",
    .operands = "SOURCE KEY...",
    .text = "Print dtype, shape, statistics and a histogram of tensors, and the values at the\n"
            "corners of their first matrix. Statistics, percentiles and histogram ignore NaN\n"
            "and infinities. With --slice, print the elements of a part instead, which is\n"
            "spelled as in numpy: 0, -1, 0:4, ::2, with commas between dimensions.",
    .n_min = 2,
    .n_max = SIZE_MAX,
    .has_source = true,
    .options = options,
};

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
    bool has_stats; /* the elements are numbers */
    bool has_percentiles, has_histogram;
    double percentiles[PERCENTILES_N];
    struct wfs_stats stats;
    uint64_t counts[VALUES_N_BINS];
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
    const struct wfs_shape *shape = &view->tensor->shape;
    const bool is_flat = view->tensor->dtype == WFS_OPAQUE || shape->rank < 2;
    const uint64_t n_elems = values_n_elems(view->tensor);
    if (n_elems == 0)
        return 0;
    const uint64_t n_columns = is_flat ? n_elems : shape->dims[shape->rank - 1];
    view->columns = edges_of(n_columns, view->wish->n_edge);
    view->rows = edges_of(is_flat ? 1 : shape->dims[shape->rank - 2], N_EDGE);
    int result = 0;
    for (size_t i = 0; i < view->rows.n && result == 0; i++) {
        for (size_t j = 0; j < view->columns.n && result == 0; j++) {
            const uint64_t at = view->rows.indices[i] * n_columns + view->columns.indices[j];
            result = values_format(view->tensor, at, view->wish->is_json, view->corners[i][j]);
        }
    }
    return result;
}

/* Reads statistics of elements that are numbers. */
static int read_stats(struct view *view, struct progress *progress)
{
    const struct wfs_tensor *tensor = view->tensor;
    int result = wfs_tensor_stats(tensor, &view->stats);
    progress_add(progress, tensor->n_bytes);
    view->has_stats = result == 0;
    if (result < 0 || wfs_dtype_kind((enum wfs_dtype)tensor->dtype) == WFS_KIND_BOOL ||
        view->stats.min >= view->stats.max)
        return result;
    result = values_histogram(tensor, &view->stats, view->counts);
    progress_add(progress, tensor->n_bytes);
    view->has_histogram = result == 0;
    if (result == 0 && view->wish->has_percentiles) {
        result = percentiles_find(tensor, view->stats.n_finite, view->percentiles);
        view->has_percentiles = result == 0;
    }
    return result;
}

/* Reads everything that needs the bytes, before anything is printed. */
static int measure(struct view *view)
{
    const enum wfs_kind kind = wfs_dtype_kind((enum wfs_dtype)view->tensor->dtype);
    const unsigned n_passes =
        2 + (view->wish->has_percentiles ? percentiles_n_passes(view->tensor) : 0);
    struct progress progress;
    int result = read_corners(view);
    if (result < 0 || kind == WFS_KIND_COMPLEX || kind == WFS_KIND_BITS)
        return result;
    progress_start(&progress, "reading", view->tensor->n_bytes * n_passes);
    result = read_stats(view, &progress);
    progress_end(&progress);
    return result;
}

/* ---- JSON ---- */

static void json_stats(struct jsonout *out, const struct view *view)
{
    const struct wfs_stats *stats = &view->stats;
    if (!view->has_stats) {
        jsonout_text(out, "stats", NULL);
        return;
    }
    const bool has_any = stats->n_finite > 0;
    jsonout_open_object(out, "stats");
    jsonout_double(out, "min", has_any ? stats->min : NAN);
    jsonout_double(out, "max", has_any ? stats->max : NAN);
    jsonout_double(out, "mean", has_any ? stats->mean : NAN);
    jsonout_double(out, "std", has_any ? stats->std : NAN);
    jsonout_u64(out, "finite", stats->n_finite);
    jsonout_u64(out, "zero", stats->n_zero);
    jsonout_u64(out, "nan", stats->n_nan);
    jsonout_u64(out, "positive_inf", stats->n_positive_inf);
    jsonout_u64(out, "negative_inf", stats->n_negative_inf);
    jsonout_close_object(out);
}

static void json_histogram(struct jsonout *out, const struct view *view)
{
    if (!view->has_histogram) {
        jsonout_text(out, "histogram", NULL);
        return;
    }
    jsonout_open_array(out, "histogram");
    for (size_t i = 0; i < VALUES_N_BINS; i++)
        jsonout_u64(out, NULL, view->counts[i]);
    jsonout_close_array(out);
}

static void json_percentiles(struct jsonout *out, const struct view *view)
{
    if (!view->has_percentiles)
        return;
    jsonout_open_object(out, "percentiles");
    for (size_t i = 0; i < PERCENTILES_N; i++) {
        char name[8];
        snprintf(name, sizeof(name), "%u", percentiles_ranks[i]);
        jsonout_double(out, name, view->percentiles[i]);
    }
    jsonout_close_object(out);
}

static void json_indices(struct jsonout *out, const char *name, const struct edges *edges)
{
    jsonout_open_array(out, name);
    for (size_t i = 0; i < edges->n; i++)
        jsonout_u64(out, NULL, edges->indices[i]);
    jsonout_close_array(out);
}

static void json_corners(struct jsonout *out, const struct view *view)
{
    jsonout_open_object(out, "corners");
    json_indices(out, "rows", &view->rows);
    json_indices(out, "columns", &view->columns);
    jsonout_open_array(out, "values");
    for (size_t i = 0; i < view->rows.n; i++) {
        jsonout_open_array(out, NULL);
        for (size_t j = 0; j < view->columns.n; j++)
            jsonout_raw(out, NULL, view->corners[i][j]);
        jsonout_close_array(out);
    }
    jsonout_close_array(out);
    jsonout_close_object(out);
}

static int json_view(const struct view *view, const struct slice *slice, struct jsonout *out)
{
    const struct wfs_tensor *tensor = view->tensor;
    int code = 0;
    jsonout_open_object(out, NULL);
    jsonout_text(out, "key", tensor->key);
    jsonout_text(out, "dtype", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    jsonout_shape(out, "shape", &tensor->shape);
    jsonout_u64(out, "bytes", tensor->n_bytes);
    jsonout_u64(out, "n_elems", values_n_elems(tensor));
    jsonout_text(out, "file", input_file_of(view->wish->catalog, tensor));
    jsonout_text(out, "source_key", wfs_tensor_origin(tensor));
    jsonout_text(out, "changes", tensor->changes);
    if (slice != NULL) {
        code = slice_put_json(slice, out);
    } else {
        json_stats(out, view);
        json_percentiles(out, view);
        json_histogram(out, view);
        json_corners(out, view);
    }
    jsonout_close_object(out);
    return code;
}

/* ---- text ---- */

static void print_stats(const struct view *view)
{
    const struct wfs_stats *stats = &view->stats;
    char min[VALUES_TEXT_MAX], max[VALUES_TEXT_MAX];
    values_format_number(view->tensor, stats->min, min);
    values_format_number(view->tensor, stats->max, max);
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
    if (wfs_dtype_kind((enum wfs_dtype)view->tensor->dtype) == WFS_KIND_FLOAT)
        snprintf(text, VALUES_TEXT_MAX, "%.4g", number);
    else
        values_format_number(view->tensor, number, text);
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

static uint64_t most_of(const struct view *view)
{
    uint64_t most = 1;
    for (size_t i = 0; i < VALUES_N_BINS; i++)
        most = view->counts[i] > most ? view->counts[i] : most;
    return most;
}

/* A bin is one character between the least and the largest number. */
static void print_short_histogram(const struct view *view)
{
    static const char *const levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    enum { N_LEVELS = sizeof(levels) / sizeof(levels[0]) };
    const uint64_t most = most_of(view);
    char min[VALUES_TEXT_MAX], max[VALUES_TEXT_MAX];
    format_short(view, view->stats.min, min);
    format_short(view, view->stats.max, max);
    printf("histogram: %s ", min);
    for (size_t i = 0; i < VALUES_N_BINS; i++) {
        const double share = (double)view->counts[i] / (double)most;
        const size_t level = (size_t)(share * (N_LEVELS - 1));
        fputs(view->counts[i] == 0 ? " " : levels[level], stdout);
    }
    printf(" %s\n", max);
}

static void print_histogram(const struct view *view)
{
    enum { N_WIDTH = 40 };
    const struct wfs_stats *stats = &view->stats;
    const uint64_t most = most_of(view);
    puts("histogram:");
    for (size_t i = 0; i < VALUES_N_BINS; i++) {
        const double part = (double)i / VALUES_N_BINS;
        const double from = stats->min * (1 - part) + stats->max * part;
        const double share = (double)view->counts[i] / (double)most;
        const int width = view->counts[i] > 0 ? (int)(share * (N_WIDTH - 1)) + 1 : 0;
        printf("  from %-12.5g %-*.*s %" PRIu64 "\n", from, N_WIDTH, width,
               "########################################", view->counts[i]);
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
}

static void print_view(const struct view *view)
{
    print_description(view);
    if (view->has_stats)
        print_stats(view);
    print_percentiles(view);
    if (view->has_histogram && view->wish->has_long_histogram)
        print_histogram(view);
    else if (view->has_histogram)
        print_short_histogram(view);
    print_corners(view);
}

/* ---- the verb ---- */

static enum exit_code report(const struct view *view, int code)
{
    if (code == -ENOMEM)
        return print_error(EXIT_UNSUPPORTED, view->wish->path, "out of memory");
    return code < 0 ? input_read_error(view->wish->path, view->tensor, code) : EXIT_DONE;
}

static enum exit_code show_slice(const struct view *view, struct jsonout *out)
{
    auto_slice struct slice slice = {0};
    const enum exit_code exit_code =
        slice_parse(&slice, view->tensor, view->wish->slice, view->wish->path);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (view->wish->is_json)
        return report(view, json_view(view, &slice, out));
    print_description(view);
    puts("values:");
    return report(view, slice_print(&slice));
}

static enum exit_code show(const struct wish *wish, const struct wfs_tensor *tensor,
                           struct jsonout *out)
{
    struct view view = {.wish = wish, .tensor = tensor};
    if (wish->slice != NULL)
        return show_slice(&view, out);
    const int result = measure(&view);
    if (result == 0 && wish->is_json)
        json_view(&view, NULL, out);
    else if (result == 0)
        print_view(&view);
    return report(&view, result);
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
    struct jsonout out = {.file = stdout};
    autofree const struct wfs_tensor **tensors = calloc(n, sizeof(*tensors));
    enum exit_code exit_code = EXIT_DONE;
    if (tensors == NULL)
        return print_error(EXIT_UNSUPPORTED, wish->path, "out of memory");
    for (size_t i = 0; i < n && exit_code == EXIT_DONE; i++)
        exit_code = input_find(wish->catalog, wish->path, args->operands[i + 1], &tensors[i]);
    if (exit_code == EXIT_DONE && wish->slice == NULL)
        exit_code = check_work(wish, tensors, n, args_has(args, "large"));
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (wish->is_json && n > 1)
        jsonout_open_array(&out, NULL);
    for (size_t i = 0; i < n && exit_code == EXIT_DONE && !ferror(stdout); i++) {
        if (i > 0 && !wish->is_json)
            putchar('\n');
        exit_code = show(wish, tensors[i], &out);
    }
    if (wish->is_json && n > 1)
        jsonout_close_array(&out);
    return exit_code;
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

int verb_show(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    const bool is_json = args_has(&args, "json");
    const size_t n_screen = is_json ? 0 : screen_width(STDOUT_FILENO);
    struct wish wish = {
        .path = args.operands[0],
        .is_json = is_json,
        .has_percentiles = args_has(&args, "percentiles") || n_screen > 0,
        .has_long_histogram = args_has(&args, "histogram") || n_screen == 0,
        .slice = args_value(&args, "slice"),
        .n_edge = choose_edge(n_screen),
    };
    exit_code = input_load(&args, wish.path, &catalog);
    wish.catalog = catalog;
    return exit_code == EXIT_DONE ? (int)show_all(&wish, &args) : exit_code;
}
