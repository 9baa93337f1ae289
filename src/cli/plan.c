/* SPDX-License-Identifier: MIT */
/*
 * weightfs plan: what the view options would do.
 */
#include "cli/args.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "program/commit.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/view.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct table_column columns[] = {
    {.heading = "old key", .n_least = 10, .cut = CUT_MIDDLE},
    {.heading = "new key", .n_least = 10, .cut = CUT_MIDDLE},
    {.heading = "dtype"},
    {.heading = "shape", .n_least = 5},
    {.heading = "class", .n_least = 5},
    {.heading = "certainty", .n_least = 6},
    {.heading = "row", .n_least = 5},
    {.heading = "why", .n_least = 10},
};

enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]), NEW_KEY = 1, DTYPE = 2 };

struct totals {
    uint64_t n_tensors, n_renamed, n_dropped;
};

/* Adds a row of the plan, which ends with a line feed; its cells are overwritten. */
static void add_row(struct table *table, char *row, struct totals *totals)
{
    char *cells[N_COLUMNS];
    for (size_t i = 0; i < N_COLUMNS; i++) {
        cells[i] = row != NULL ? strsep(&row, "\t") : "";
    }
    const bool is_dropped = strcmp(cells[NEW_KEY], "-") == 0;
    const bool is_renamed = !is_dropped && strcmp(cells[0], cells[NEW_KEY]) != 0;
    totals->n_tensors++;
    totals->n_dropped += is_dropped;
    totals->n_renamed += is_renamed;
    for (size_t i = 0; i < N_COLUMNS; i++) {
        const enum screen_colour colour = i == DTYPE                          ? COLOUR_DTYPE
                                          : i <= NEW_KEY && is_dropped        ? COLOUR_REMOVED
                                          : i == NEW_KEY && is_renamed        ? COLOUR_CHANGED
                                          : i + 1 == N_COLUMNS && !is_dropped ? COLOUR_CHANGED
                                                                              : COLOUR_NONE;
        table_text(table, colour, cells[i]);
    }
}

/* Prints the plan, whose first row is a heading, as a table on a terminal. */
static int print_table(char *plan, const struct args *args)
{
    auto_table struct table table;
    struct totals totals = {0};
    table_start(&table, columns, N_COLUMNS, args);
    for (char *row = strchr(plan, '\n'), *next; row != NULL && row[1] != '\0'; row = next) {
        next = strchr(++row, '\n');
        if (next != NULL)
            *next = '\0';
        add_row(&table, row, &totals);
    }
    const int code = table_print(&table);
    if (code < 0)
        return code;
    printf("%s, %" PRIu64 " renamed, %" PRIu64 " dropped\n",
           wfs_count(totals.n_tensors, "tensor").text, totals.n_renamed, totals.n_dropped);
    table_print_hidden(code);
    return 0;
}

static enum exit_code print_report(const struct args *args, const struct wfs_report *report)
{
    autofree char *text = NULL;
    size_t n_text;
    const enum wfs_report_form form = args_has(args, "json")     ? WFS_REPORT_JSON
                                      : args_has(args, "report") ? WFS_REPORT_TEXT
                                      : args_has(args, "null")   ? WFS_REPORT_NULL
                                                                 : WFS_REPORT_PLAN;
    if (wfs_report_write(report, form, &text, &n_text) < 0)
        return print_memory(args->operands[0]);
    if (form == WFS_REPORT_JSON)
        print_json(stdout, text, n_text);
    else if (form == WFS_REPORT_PLAN && screen_width(STDOUT_FILENO) > 0)
        return print_table(text, args) < 0 ? print_memory(args->operands[0]) : EXIT_DONE;
    else
        fwrite(text, 1, n_text, stdout);
    return EXIT_DONE;
}

/* Adds to the report what a conversion to the format would leave out. */
static enum exit_code report_fit(const char *path, const struct wfs_format *format,
                                 struct wfs_catalog *catalog, struct wfs_report *report)
{
    struct commit commit = {.catalog = catalog, .format = format};
    struct wfs_error err = {0};
    int code = commit_fit(&commit, &err);
    code = code < 0 ? code : commit_report(&commit, report);
    commit_done(&commit);
    wfs_fail(&err, -code, "%s", strerror(-code));
    return code < 0 ? print_error(exit_of_errno(-code), path, "%s", err.text) : EXIT_DONE;
}

/* Returns the bytes in the file of the tensors that are cast. */
static uint64_t count_cast_bytes(const struct wfs_catalog *catalog)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const enum wfs_dtype stored = (enum wfs_dtype)tensor->stored.dtype;
        if (tensor->dtype != stored)
            n_bytes = input_add(n_bytes, input_n_elems(tensor) / 8 * wfs_dtype_bits(stored));
    }
    return n_bytes;
}

static enum exit_code count_casts(const char *path, uint64_t n_bytes, bool allows_large,
                                  struct wfs_report *report)
{
    struct wfs_error err = {0};
    struct progress progress;
    progress_start(&progress, "reading", n_bytes);
    const int code = wfs_report_count_casts(report, allows_large, &err);
    progress_end(&progress);
    if (code == -EFBIG)
        return input_workload_error(path, &err, INPUT_CHOOSE_FEWER);
    return code == 0 ? EXIT_DONE
                     : print_error(exit_of_errno(-code), path,
                                   "cannot read a tensor that is to be cast: %s", strerror(-code));
}

/* Returns the format that --format names in *ret, NULL without it; or prints a line. */
static enum exit_code choose_format(const struct args *args, const struct wfs_format **ret)
{
    const char *name = args_value(args, "format");
    struct wfs_error err = {0};
    *ret = NULL;
    if (name == NULL || settings_parse_format(name, ret, &err) == 0)
        return EXIT_DONE;
    return print_error(EXIT_USAGE, NULL, "--format %s", err.text);
}

static enum exit_code run_plan(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    auto_report struct wfs_report *report = NULL;
    const struct wfs_format *format = NULL;
    enum exit_code exit_code = choose_format(args, &format);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const char *path = args->operands[0];
    enum exit_code verdict = input_load_report(args, path, &catalog, &report);
    if (report == NULL)
        return verdict;
    if (verdict == EXIT_DONE && args_has(args, "values")) {
        exit_code = count_casts(path, count_cast_bytes(catalog), args_has(args, "large"), report);
        if (exit_code != EXIT_DONE)
            return exit_code;
    }
    if (verdict == EXIT_DONE && format != NULL)
        verdict = report_fit(path, format, catalog, report);
    const enum exit_code printed = print_report(args, report);
    return (verdict != EXIT_DONE ? verdict : printed);
}

const struct verb verb_plan = {
    .operands = "SOURCE",
    .text = "Show what the view options would do to each tensor of SOURCE, and why, as a\n"
            "table, in pipes with tabs between the columns. Writes nothing. The same view\n"
            "options can be given to a mount (-o NAME=VALUE) and to every verb that reads a\n"
            "SOURCE.",
    .has_source = true,
    .lists_views = true,
    .options = {{"format", "NAME", "also report what this format cannot store"},
                {"json", NULL, "print the full report as one JSON object"},
                {"large", NULL, INPUT_LARGE_HELP},
                {"null", NULL, "-0: print rows unescaped, each with a NUL"},
                {"report", NULL, "print a summary, at most ten entries per list"},
                {"values", NULL, "read tensors that are cast; count overflows, NaN"}},
    .run = run_plan,
};
