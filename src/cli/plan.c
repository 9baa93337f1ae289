/* SPDX-License-Identifier: MIT */
/*
 * weightfs plan: what the view options would do.
 */
#include "cli/verbs.h"

#include "cli/input.h"
#include "program/print.h"
#include "program/commit.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/view.h>

#include <stdio.h>
#include <string.h>

static const struct args_option options[] = {
    {"format", "NAME", "also report what this format cannot store"},
    {"json", NULL, "print the full report as one JSON object"},
    {"null", NULL, "-0: print rows unescaped, each with a NUL"},
    {"report", NULL, "print a summary, at most ten entries per list"},
    {"values", NULL, "read tensors that are cast; count overflows, NaN"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "plan",
    .operands = "SOURCE",
    .text = "Show what the view options would do to each tensor of SOURCE, and why, as a\n"
            "table with tabs between the columns. Writes nothing. The same view options can\n"
            "be given to a mount (-o NAME=VALUE) and to every verb that reads a SOURCE.",
    .n_min = 1,
    .n_max = 1,
    .has_source = true,
    .lists_views = true,
    .options = options,
};

static enum exit_code print_report(const struct args *args, const struct wfs_report *report)
{
    autofree char *text = NULL;
    size_t n_text;
    const enum wfs_report_form form = args_has(args, "json")     ? WFS_REPORT_JSON
                                      : args_has(args, "report") ? WFS_REPORT_TEXT
                                      : args_has(args, "null")   ? WFS_REPORT_NULL
                                                                 : WFS_REPORT_PLAN;
    if (wfs_report_write(report, form, &text, &n_text) < 0)
        return print_error(EXIT_UNSUPPORTED, args->operands[0], "out of memory");
    if (form == WFS_REPORT_JSON)
        print_json(stdout, text, n_text);
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

int verb_plan(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    auto_catalog struct wfs_catalog *catalog = NULL;
    auto_report struct wfs_report *report = NULL;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    const struct wfs_format *format = NULL;
    exit_code = input_format(&args, &format);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const char *path = args.operands[0];
    enum exit_code verdict = input_load_report(&args, path, &catalog, &report);
    if (report == NULL)
        return (int)verdict;
    if (verdict == EXIT_DONE && args_has(&args, "values")) {
        const int code = wfs_report_count_casts(report, catalog);
        if (code < 0)
            return print_error(exit_of_errno(-code), path,
                               "cannot read a tensor that is to be cast: %s", strerror(-code));
    }
    if (verdict == EXIT_DONE && format != NULL)
        verdict = report_fit(path, format, catalog, report);
    const enum exit_code printed = print_report(&args, report);
    return (int)(verdict != EXIT_DONE ? verdict : printed);
}
