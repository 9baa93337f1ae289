/* SPDX-License-Identifier: MIT */
/*
 * weightfs show: description, statistics, histogram and corner values of one tensor.
 */
#include "cli/verbs.h"

#include "cli/input.h"
#include "cli/jsonout.h"
#include "cli/progress.h"
#include "program/print.h"
#include "cli/values.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct args_option options[] = {
    {"json", NULL, "print one JSON object"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "show",
    .operands = "SOURCE KEY",
    .text = "Print dtype, shape, statistics and a histogram of a tensor, and the values at\n"
            "the corners of its first matrix. Statistics and histogram ignore NaN and\n"
            "infinities.",
    .n_min = 2,
    .n_max = 2,
    .has_source = true,
    .options = options,
};

enum { N_EDGE = 3 }; /* rows and columns shown at each edge */

/* The first and last few indices of a dimension. */
struct edges {
    uint64_t indices[2 * N_EDGE];
    size_t n;
    bool has_gap;
};

struct view {
    const char *path;
    const struct wfs_catalog *catalog;
    const struct wfs_tensor *tensor;
    bool has_stats; /* the elements are numbers */
    bool has_histogram;
    struct wfs_stats stats;
    uint64_t counts[VALUES_N_BINS];
    struct edges rows, columns;
    char corners[2 * N_EDGE][2 * N_EDGE][VALUES_TEXT_MAX];
};

static struct edges edges_of(uint64_t n)
{
    struct edges edges = {.n = n < 2 * N_EDGE ? (size_t)n : 2 * N_EDGE};
    edges.has_gap = n > 2 * N_EDGE;
    for (size_t i = 0; i < edges.n; i++)
        edges.indices[i] = edges.has_gap && i >= N_EDGE ? n - 2 * N_EDGE + i : i;
    return edges;
}

/*
 * Reads the corners of the matrix of the last two dimensions, with all other indices 0; fewer
 * dimensions are one row.
 */
static int read_corners(struct view *view, bool is_json)
{
    const struct wfs_shape *shape = &view->tensor->shape;
    const bool is_flat = view->tensor->dtype == WFS_OPAQUE || shape->rank < 2;
    const uint64_t n_elems = values_n_elems(view->tensor);
    if (n_elems == 0)
        return 0;
    const uint64_t n_columns = is_flat ? n_elems : shape->dims[shape->rank - 1];
    view->columns = edges_of(n_columns);
    view->rows = edges_of(is_flat ? 1 : shape->dims[shape->rank - 2]);
    int result = 0;
    for (size_t i = 0; i < view->rows.n && result == 0; i++) {
        for (size_t j = 0; j < view->columns.n && result == 0; j++) {
            const uint64_t at = view->rows.indices[i] * n_columns + view->columns.indices[j];
            result = values_format(view->tensor, at, is_json, view->corners[i][j]);
        }
    }
    return result;
}

/* Reads everything that needs the bytes, before anything is printed. */
static int measure(struct view *view, bool is_json)
{
    const enum wfs_kind kind = wfs_dtype_kind(view->tensor->dtype);
    int result = read_corners(view, is_json);
    if (result < 0 || kind == WFS_KIND_COMPLEX || kind == WFS_KIND_BITS)
        return result;
    struct progress progress;
    progress_start(&progress, "reading", input_add(view->tensor->n_bytes, view->tensor->n_bytes));
    result = wfs_tensor_stats(view->tensor, &view->stats);
    progress_add(&progress, view->tensor->n_bytes);
    view->has_stats = result == 0;
    if (result == 0 && kind != WFS_KIND_BOOL && view->stats.min < view->stats.max) {
        result = values_histogram(view->tensor, &view->stats, view->counts);
        view->has_histogram = result == 0;
    }
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

static void json_view(const struct view *view)
{
    const struct wfs_tensor *tensor = view->tensor;
    struct jsonout out = {.file = stdout};
    jsonout_open_object(&out, NULL);
    jsonout_text(&out, "key", tensor->key);
    jsonout_text(&out, "dtype", wfs_dtype_name(tensor->dtype));
    jsonout_shape(&out, "shape", &tensor->shape);
    jsonout_u64(&out, "bytes", tensor->n_bytes);
    jsonout_u64(&out, "n_elems", values_n_elems(tensor));
    jsonout_text(&out, "file", input_file_of(view->catalog, tensor));
    jsonout_text(&out, "source_key", wfs_tensor_origin(tensor));
    jsonout_text(&out, "changes", tensor->changes);
    json_stats(&out, view);
    json_histogram(&out, view);
    json_corners(&out, view);
    jsonout_close_object(&out);
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

static void print_histogram(const struct view *view)
{
    enum { N_WIDTH = 40 };
    const struct wfs_stats *stats = &view->stats;
    uint64_t most = 1;
    for (size_t i = 0; i < VALUES_N_BINS; i++)
        most = view->counts[i] > most ? view->counts[i] : most;
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
        if (view->columns.has_gap && j == N_EDGE)
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

static void print_view(const struct view *view)
{
    const struct wfs_tensor *tensor = view->tensor;
    fputs("key:      ", stdout);
    print_escaped(stdout, tensor->key);
    printf("\ndtype:    %s", wfs_dtype_name(tensor->dtype));
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
    if (view->has_stats)
        print_stats(view);
    if (view->has_histogram)
        print_histogram(view);
    print_corners(view);
}

static enum exit_code show(struct view *view, bool is_json)
{
    const int result = measure(view, is_json);
    if (result == -ENOMEM)
        return print_error(EXIT_UNSUPPORTED, view->path, "out of memory");
    if (result < 0)
        return input_read_error(view->path, view->tensor, result);
    if (is_json)
        json_view(view);
    else
        print_view(view);
    return EXIT_DONE;
}

int verb_show(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    struct view view = {.path = args.operands[0]};
    exit_code = input_load(&args, view.path, &catalog);
    if (exit_code == EXIT_DONE)
        exit_code = input_find(catalog, view.path, args.operands[1], &view.tensor);
    if (exit_code != EXIT_DONE)
        return exit_code;
    view.catalog = catalog;
    return show(&view, args_has(&args, "json"));
}
