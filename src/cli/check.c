/* SPDX-License-Identifier: MIT */
/*
 * weightfs check: damage and oddities of a checkpoint.
 */
#include "cli/verbs.h"

#include "cli/input.h"
#include "cli/jsonout.h"
#include "program/print.h"
#include "cli/progress.h"
#include "cli/repeated.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

static const struct args_option options[] = {
    {"json", NULL, "print one JSON object"},
    {"values", NULL, "read all tensors and look for NaN and infinities"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "check",
    .operands = "SOURCE",
    .text = "Check a checkpoint for damage and oddities. Prints one line for each finding:\n"
            "its severity (info, low, medium or high) and a description. The exit code is 1\n"
            "if a finding is above info, and 3 to 6 if the checkpoint cannot be read.",
    .n_min = 1,
    .n_max = 1,
    .has_source = true,
    .options = options,
};

struct check {
    const char *path;
    const struct wfs_catalog *catalog;
    struct jsonout json; /* without a file: text is printed */
    enum wfs_severity worst;
    struct progress progress;
    uint64_t n_bytes; /* of all tensors */
    struct repeated *repeated;
};

static void report(struct check *check, enum wfs_severity severity, const char *text)
{
    const struct wfs_finding finding = {.severity = severity, .text = text};
    if (severity > check->worst)
        check->worst = severity;
    if (check->json.file != NULL)
        jsonout_finding(&check->json, &finding);
    else
        print_finding(stdout, &finding);
}

static void report_count(struct check *check, enum wfs_severity severity,
                         const struct wfs_tensor *tensor, const char *what, uint64_t n,
                         uint64_t n_elems)
{
    char text[WFS_ERROR_TEXT_MAX];
    if (n == 0)
        return;
    snprintf(text, sizeof(text), "tensor '%s': %" PRIu64 " of %s %s %s",
             wfs_quote(tensor->key).text, n, wfs_count(n_elems, "element").text,
             n == 1 ? "is" : "are", what);
    report(check, severity, text);
}

/* Counts NaN and infinities; a tensor that does not hold numbers has none. */
static int check_tensor(struct check *check, const struct wfs_tensor *tensor)
{
    struct wfs_stats stats;
    const int result = repeated_stats(check->repeated, tensor, &stats);
    if (result == -EOPNOTSUPP)
        return 0;
    if (result < 0)
        return result;
    report_count(check, WFS_MEDIUM, tensor, "NaN", stats.n_nan, stats.n_elems);
    report_count(check, WFS_LOW, tensor, "infinite", stats.n_positive_inf + stats.n_negative_inf,
                 stats.n_elems);
    return 0;
}

/* NaN may be a fault; infinities are how some models mask. */
static enum exit_code check_values(struct check *check)
{
    const size_t n = wfs_catalog_n_tensors(check->catalog);
    if (repeated_new(check->catalog, &check->repeated) < 0)
        return print_error(EXIT_UNSUPPORTED, check->path, "out of memory");
    for (size_t i = 0; i < n && !ferror(stdout); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(check->catalog, i);
        if (tensor->trouble != NULL)
            continue;
        const int result = check_tensor(check, tensor);
        if (result < 0)
            return input_read_error(check->path, tensor, result);
        progress_add(&check->progress, tensor->n_bytes);
    }
    return EXIT_DONE;
}

static void survey(struct check *check)
{
    for (size_t i = 0; i < wfs_catalog_n_tensors(check->catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(check->catalog, i);
        char text[WFS_ERROR_TEXT_MAX];
        check->n_bytes = input_add(check->n_bytes, tensor->n_bytes);
        if (tensor->trouble == NULL)
            continue;
        snprintf(text, sizeof(text), "tensor '%s': %s", wfs_quote(tensor->key).text,
                 tensor->trouble);
        report(check, WFS_HIGH, text);
    }
}

static enum exit_code run(struct check *check, bool has_values)
{
    enum exit_code exit_code = EXIT_DONE;
    size_t changed;
    for (size_t i = 0; i < wfs_catalog_n_findings(check->catalog); i++) {
        const struct wfs_finding *finding = wfs_catalog_finding(check->catalog, i);
        report(check, finding->severity, finding->text);
    }
    survey(check);
    if (has_values) {
        progress_start(&check->progress, "checking", check->n_bytes);
        exit_code = check_values(check);
        repeated_free(check->repeated);
        progress_end(&check->progress);
    }
    if (exit_code == EXIT_DONE && wfs_catalog_check_sources(check->catalog, &changed) < 0)
        exit_code = print_error(EXIT_DAMAGED, check->path, "the file changed while it was read");
    if (exit_code == EXIT_DONE && check->worst >= WFS_LOW)
        exit_code = EXIT_FOUND;
    return exit_code;
}

static enum exit_code run_json(struct check *check, bool has_values)
{
    check->json.file = stdout;
    jsonout_open_object(&check->json, NULL);
    jsonout_text(&check->json, "file", check->path);
    jsonout_u64(&check->json, "n_tensors", wfs_catalog_n_tensors(check->catalog));
    jsonout_open_array(&check->json, "findings");
    const enum exit_code exit_code = run(check, has_values);
    jsonout_close_array(&check->json);
    jsonout_close_object(&check->json);
    return exit_code;
}

/* Adds wrong checksums to the findings. */
static enum exit_code verify(const char *path, struct wfs_catalog *catalog)
{
    struct wfs_error err = {0};
    struct progress progress;
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < wfs_catalog_n_sources(catalog); i++)
        n_bytes = input_add(n_bytes, wfs_catalog_source_bytes(catalog, i));
    progress_start(&progress, "checking", n_bytes);
    const int code = wfs_verify(catalog, &err);
    progress_end(&progress);
    return code < 0 ? print_error(exit_of_errno(-code), path, "%s", err.text) : EXIT_DONE;
}

int verb_check(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    struct check check = {.path = args.operands[0], .worst = WFS_INFO};
    exit_code = input_load(&args, check.path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    exit_code = verify(check.path, catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    check.catalog = catalog;
    const bool has_values = args_has(&args, "values");
    if (args_has(&args, "json"))
        return run_json(&check, has_values);
    exit_code = run(&check, has_values);
    if (exit_code == EXIT_DONE && isatty(STDOUT_FILENO))
        printf("no problems in %s\n", wfs_count(wfs_catalog_n_tensors(catalog), "tensor").text);
    return exit_code;
}
