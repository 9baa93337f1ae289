/* SPDX-License-Identifier: MIT */
/*
 * weightfs report and map: a checkpoint, or what differs between two, as a page of HTML and as a
 * picture. Everything is computed before a byte is written.
 */
#include "cli/args.h"
#include "cli/input.h"
#include "cli/picture.h"
#include "cli/progress.h"
#include "cli/values.h"
#include "program/destination.h"
#include "program/threads.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/output.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void report_done(struct report *report)
{
    free(report->rows);
    free(report->values);
    free(report->tensors);
    for (size_t i = 0; i < 2; i++)
        wfs_catalog_free(report->catalogs[i]);
}

/* ---- what is computed ---- */

static int by_elems(const void *a, const void *b)
{
    const struct report_dtype *x = a, *y = b;
    if (x->n_elems != y->n_elems)
        return x->n_elems > y->n_elems ? -1 : 1;
    return (x->dtype > y->dtype) - (x->dtype < y->dtype);
}

/* Of the tensors of A. */
static void count_dtypes(struct report *report)
{
    struct report_dtype all[WFS_N_DTYPES] = {0};
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct wfs_tensor *tensor = report->rows[i].a;
        if (tensor == NULL)
            continue;
        struct report_dtype *dtype = &all[tensor->dtype];
        dtype->n_tensors++;
        dtype->n_elems = input_add(dtype->n_elems, input_n_elems(tensor));
        dtype->n_bytes = input_add(dtype->n_bytes, tensor->n_bytes);
    }
    for (size_t i = 0; i < WFS_N_DTYPES; i++) {
        all[i].dtype = (enum wfs_dtype)i;
        if (all[i].n_tensors > 0)
            report->dtypes[report->n_dtypes++] = all[i];
    }
    qsort(report->dtypes, report->n_dtypes, sizeof(*report->dtypes), by_elems);
}

static enum exit_code find_rows(struct report *report, const struct args *args)
{
    for (size_t i = 0; i < args->n_operands; i++) {
        report->paths[i] = args->operands[i];
        const enum exit_code exit_code = input_load(args, report->paths[i], &report->catalogs[i]);
        if (exit_code != EXIT_DONE)
            return exit_code;
    }
    if (diff_rows_make(report->catalogs[0], report->catalogs[1], &report->rows, &report->n_rows) <
        0)
        return print_memory(report->paths[0]);
    diff_rows_sort(report->rows, report->n_rows);
    report->tensors = calloc(report->n_rows + 1, sizeof(*report->tensors));
    if (report->tensors == NULL)
        return print_memory(report->paths[0]);
    for (size_t i = 0; i < report->n_rows; i++)
        report->tensors[i] = diff_row_tensor(&report->rows[i]);
    report->tree = (struct key_tree){report->tensors, report->n_rows};
    count_dtypes(report);
    return EXIT_DONE;
}

static int measure(const struct wfs_io *io, const struct wfs_tensor *tensor,
                   struct report_values *values)
{
    cleanup(wfs_numbers_done) struct wfs_numbers numbers = {0};
    int code = wfs_tensor_is_damaged(tensor) ? -EIO : wfs_numbers_init(&numbers, tensor);
    if (code == 0)
        code = wfs_tensor_stats(io, numbers.tensor, &values->stats);
    values->has_stats = code == 0;
    if (code < 0)
        return code == -EOPNOTSUPP ? 0 : code;
    values->has_histogram = values->stats.min < values->stats.max;
    return values->has_histogram ? values_sample(numbers.tensor, &values->stats, REPORT_N_BINS,
                                                 values->counts, &values->n_sampled)
                                 : 0;
}

/* One pass over the rows in several threads: values of each, or a comparison. */
struct job {
    struct pool pool; /* first: its functions are given that */
    struct report *report;
    struct progress *progress;
    enum exit_code exit_code; /* of tensors that cannot be read */
};

static int make_values(struct pool *pool, size_t i, void *result)
{
    struct job *job = (struct job *)pool;
    const struct wfs_tensor *tensor = job->report->tensors[i];
    struct report_values *values = result;
    *values = (struct report_values){0};
    const int code = measure(&pool->io, tensor, values);
    progress_add(job->progress, tensor->n_bytes);
    return code;
}

static int skip_values(struct pool *pool, size_t i, int code)
{
    struct job *job = (struct job *)pool;
    const struct report *report = job->report;
    const struct wfs_tensor *tensor = report->tensors[i];
    return input_skip(report->paths[tensor != report->rows[i].a], tensor, code, &job->exit_code);
}

static int take_values(struct pool *pool, size_t i, const void *result)
{
    const struct report_values *values = result;
    ((struct job *)pool)->report->values[i] = *values;
    return 0;
}

static int make_comparison(struct pool *pool, size_t i, void *result)
{
    struct job *job = (struct job *)pool;
    struct diff_row *row = &job->report->rows[i];
    const struct comparison_options options = {.has_measures = true};
    struct comparison *comparison = result;
    *comparison = (struct comparison){0};
    if (row->a == NULL || row->b == NULL)
        return 0;
    const int code = comparison_make(&pool->io, row->a, row->b, options, comparison, &row->failed);
    progress_add(job->progress, input_add(row->a->n_bytes, row->b->n_bytes));
    return code;
}

static int take_comparison(struct pool *pool, size_t i, const void *result)
{
    struct diff_row *row = &((struct job *)pool)->report->rows[i];
    row->comparison = *(const struct comparison *)result;
    row->is_equal = row->a != NULL && row->b != NULL && comparison_is_alike(row->a, row->b) &&
                    row->comparison.has_content && row->comparison.n_changed == 0;
    return 0;
}

static int skip_comparison(struct pool *pool, size_t i, int code)
{
    struct job *job = (struct job *)pool;
    return input_skip_row(job->report->paths, &job->report->rows[i], code, &job->exit_code);
}

static enum exit_code find_work(const struct report *report, bool compares, const struct args *args,
                                struct wfs_workload **out)
{
    autofree struct wfs_work *works = calloc(report->n_rows + 1, sizeof(*works));
    for (size_t i = 0; i < report->n_rows && works != NULL; i++) {
        const struct diff_row *row = &report->rows[i];
        const bool has_both = row->a != NULL && row->b != NULL;
        if (!compares)
            works[i].tensor = report->tensors[i];
        else if (has_both && comparison_has_content(row->a, row->b))
            works[i] = (struct wfs_work){row->a, row->b};
    }
    return input_workload(report->paths[0], works, report->n_rows, args_has(args, "large"),
                          INPUT_CHOOSE_FEWER, out);
}

static enum exit_code run_job(struct job *job, const struct args *args, bool compares)
{
    struct report *report = job->report;
    struct wfs_workload *workload = NULL;
    const enum exit_code exit_code = find_work(report, compares, args, &workload);
    if (exit_code != EXIT_DONE)
        return exit_code;
    job->pool = (struct pool){.workload = workload,
                              .n = report->n_rows,
                              .n_result = compares ? sizeof(struct comparison)
                                                   : sizeof(struct report_values),
                              .make = compares ? make_comparison : make_values,
                              .visit = compares ? take_comparison : take_values,
                              .fail = compares ? skip_comparison : skip_values};
    const int code = pool_run(&job->pool);
    wfs_workload_free(workload);
    return code == -ENOMEM ? print_memory(report->paths[0]) : job->exit_code;
}

static enum exit_code compute(struct report *report, const struct args *args, bool has_values)
{
    struct progress progress;
    uint64_t n_bytes = 0;
    enum exit_code exit_code = EXIT_DONE;
    struct job job = {.report = report, .progress = &progress};
    report->values = has_values ? calloc(report->n_rows + 1, sizeof(*report->values)) : NULL;
    if (has_values && report->values == NULL)
        return print_memory(report->paths[0]);
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct diff_row *row = &report->rows[i];
        if (has_values)
            n_bytes = input_add(n_bytes, report->tensors[i]->n_bytes);
        if (row->a != NULL && row->b != NULL)
            n_bytes = input_add(n_bytes, input_add(row->a->n_bytes, row->b->n_bytes));
    }
    progress_start(&progress, "reading", n_bytes);
    if (has_values)
        exit_code = run_job(&job, args, false);
    if (exit_code == EXIT_DONE && report->paths[1] != NULL)
        exit_code = run_job(&job, args, true);
    progress_end(&progress);
    return exit_code;
}

/* ---- the output ---- */

/* Decides whether the file may be written, as `convert` does; no source is ever replaced. */
static enum exit_code choose_output(const struct report *report, struct destination *destination)
{
    struct wfs_error err = {0};
    struct stat st;
    const char *path = destination->typed;
    const bool exists = stat(path, &st) == 0;
    enum exit_code exit_code = destination_check_links(destination, path, &err);
    for (size_t i = 0; i < 2 && exit_code == EXIT_DONE && exists; i++) {
        if (report->catalogs[i] != NULL && wfs_catalog_reads(report->catalogs[i], &st))
            return print_error(EXIT_OUTPUT, path, "is the checkpoint itself: choose another name");
    }
    if (exit_code == EXIT_DONE)
        exit_code = destination_choose_replacement(destination, exists ? &st : NULL, &err);
    return exit_code == EXIT_DONE ? EXIT_DONE : print_error(exit_code, path, "%s", err.text);
}

static enum exit_code write_output(const struct report *report,
                                   const struct destination *destination, const struct strbuf *text)
{
    struct wfs_error err = {0};
    if (destination->typed == NULL) {
        fwrite(text->bytes, 1, text->n_bytes, stdout);
        return EXIT_DONE;
    }
    struct wfs_save_options save = destination_save_options(destination);
    save.access = wfs_catalog_access(report->catalogs[0]);
    if (report->catalogs[1] != NULL) {
        const struct wfs_access more = wfs_catalog_access(report->catalogs[1]);
        wfs_access_merge(&save.access, &more);
    }
    return wfs_output_write(destination->typed, text->bytes, text->n_bytes, &save, &err) < 0
               ? print_error(EXIT_OUTPUT, destination->typed, "%s", err.text)
               : EXIT_DONE;
}

static enum exit_code run(const struct args *args, bool has_values,
                          int (*draw)(const struct report *report, struct strbuf *out))
{
    cleanup(report_done) struct report report = {0};
    autostrbuf struct strbuf text = {0};
    struct settings settings = args->settings;
    settings.overwrite = args_has(args, "overwrite");
    struct destination destination = {.typed = args_value(args, "output"), .settings = &settings};
    if (destination.typed != NULL && strcmp(destination.typed, "-") == 0)
        destination.typed = NULL;
    if (destination.typed == NULL && isatty(STDOUT_FILENO))
        return print_error(EXIT_USAGE, NULL,
                           "standard output is a terminal: add '-o %s', or redirect it",
                           has_values ? "report.html" : "map.svg");
    enum exit_code exit_code = find_rows(&report, args);
    if (exit_code == EXIT_DONE && destination.typed != NULL)
        exit_code = choose_output(&report, &destination);
    if (exit_code == EXIT_DONE)
        exit_code = compute(&report, args, has_values);
    if (exit_code != EXIT_DONE)
        return exit_code;
    return draw(&report, &text) < 0 ? print_memory(report.paths[0])
                                    : write_output(&report, &destination, &text);
}

static enum exit_code run_report(const struct args *args)
{
    return run(args, true, report_write_page);
}

static enum exit_code run_map(const struct args *args)
{
    return run(args, false, report_draw_map);
}

#define OUTPUT_OPTIONS                                                                             \
    {"large", NULL, INPUT_LARGE_HELP}, {"output", "FILE", "-o: where to write it (or stdout)"},    \
    {                                                                                              \
        "overwrite", NULL, "replace FILE if it exists"                                             \
    }

const struct verb verb_report = {
    .operands = "SOURCE [B]",
    .text = "Draw a checkpoint as one page of HTML, which needs no network: a treemap of the\n"
            "parameters by module, dtypes, and statistics and a histogram of each tensor.\n"
            "With B, another checkpoint, colours show how much each tensor changes from\n"
            "SOURCE to B, by layer and module too. The view options apply to both.",
    .has_source = true,
    .options = {OUTPUT_OPTIONS},
    .run = run_report,
};

const struct verb verb_map = {
    .operands = "SOURCE [B]",
    .text = "Draw a treemap of the parameters of a checkpoint by module as a picture, SVG.\n"
            "Colours are dtypes; with B, another checkpoint, how much each tensor changes\n"
            "from SOURCE to B. The view options apply to both.",
    .has_source = true,
    .options = {OUTPUT_OPTIONS},
    .run = run_map,
};
