/* SPDX-License-Identifier: MIT */
/*
 * weightfs plan: what the options of a view would do.
 */
#include "cli/verbs.h"

#include "cli/auto.h"
#include "cli/input.h"
#include "cli/print.h"

#include <stdio.h>

static const struct args_option options[] = {
    {"json", NULL, "print the report as one JSON object"},
    {"report", NULL, "print the report as text, lists cut at ten"},
    {"values", NULL, "read what is cast, and count overflows and NaN"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "plan",
    .operands = "SOURCE",
    .text = "Tells what the options below would do to each tensor of SOURCE, and why:\n"
            "a table with tabs between the columns. Writes nothing. The options are the\n"
            "same for a mount (-o) and for every verb that reads a SOURCE.",
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
                                                                 : WFS_REPORT_PLAN;
    if (wfs_report_write(report, form, &text, &n_text) < 0)
        return print_error(EXIT_UNSUPPORTED, args->operands[0], "out of memory");
    fwrite(text, 1, n_text, stdout);
    return EXIT_DONE;
}

int verb_plan(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    auto_catalog struct wfs_catalog *catalog = NULL;
    auto_report struct wfs_report *report = NULL;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    const char *path = args.operands[0];
    const enum exit_code verdict = input_load_report(&args, path, &catalog, &report);
    if (report == NULL)
        return (int)verdict;
    if (verdict == EXIT_DONE && args_has(&args, "values")) {
        const int code = wfs_report_count_casts(report, catalog);
        if (code < 0)
            return print_error(exit_of_errno(-code), path, "cannot read what is to be cast");
    }
    const enum exit_code printed = print_report(&args, report);
    return (int)(verdict != EXIT_DONE ? verdict : printed);
}
