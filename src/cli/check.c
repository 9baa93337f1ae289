/* SPDX-License-Identifier: MIT */
/*
 * weightfs check: damage and oddities of a checkpoint.
 */
#include "cli/args.h"

#include "cli/input.h"
#include <weightfs/json_out.h>
#include "program/print.h"
#include "cli/progress.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

struct check {
    const char *path;
    const struct wfs_catalog *catalog;
    struct json_out json; /* without a file: text is printed */
    enum wfs_severity worst;
    struct progress progress;
    uint64_t n_bytes; /* of all tensors */
};

/* What is counted in a tensor, kept for those that show the same. */
struct counts {
    bool is_known;
    int code; /* of the reading */
    struct wfs_stats stats;
};

static void report(struct check *check, enum wfs_severity severity, const char *text)
{
    const struct wfs_finding finding = {.severity = severity, .text = text};
    if (severity > check->worst)
        check->worst = severity;
    if (check->json.file != NULL)
        print_json_finding(&check->json, &finding);
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

/* Of complex elements, only NaN and infinities are counted. */
static int count(const struct wfs_tensor *tensor, struct wfs_stats *ret)
{
    struct wfs_odd odd;
    int code = wfs_tensor_stats(tensor, ret);
    if (code != -EOPNOTSUPP)
        return code;
    code = wfs_tensor_count_odd(tensor, &odd);
    if (code == 0)
        *ret = (struct wfs_stats){
            .n_elems = odd.n_elems, .n_nan = odd.n_nan, .n_positive_inf = odd.n_inf};
    return code;
}

/* Reports NaN and infinities; a tensor that does not hold numbers has none. */
static int check_tensor(struct check *check, const struct wfs_tensor *tensor, struct counts *counts)
{
    const struct wfs_stats *stats = &counts->stats;
    if (!counts->is_known)
        counts->code = count(tensor, &counts->stats);
    counts->is_known = true;
    if (counts->code < 0)
        return counts->code == -EOPNOTSUPP ? 0 : counts->code;
    report_count(check, WFS_MEDIUM, tensor, "NaN", stats->n_nan, stats->n_elems);
    report_count(check, WFS_LOW, tensor, "infinite", stats->n_positive_inf + stats->n_negative_inf,
                 stats->n_elems);
    return 0;
}

/* NaN may be a fault; infinities are how some models mask. */
static enum exit_code check_all(struct check *check, const struct wfs_workload *workload)
{
    const size_t n = wfs_catalog_n_tensors(check->catalog);
    autofree struct counts *counts = calloc(wfs_workload_n_groups(workload) + 1, sizeof(*counts));
    if (counts == NULL)
        return print_memory(check->path);
    for (size_t i = 0; i < n && !ferror(stdout); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(check->catalog, i);
        const size_t group = wfs_workload_group(workload, i);
        if (tensor->trouble != NULL)
            continue;
        counts[0].is_known = false; /* of those that are alone */
        const int result = check_tensor(check, tensor, &counts[group]);
        if (result < 0)
            return input_read_error(check->path, tensor, result);
        progress_add(&check->progress, tensor->n_bytes);
    }
    return EXIT_DONE;
}

static enum exit_code check_values(struct check *check, bool allows_large)
{
    const size_t n = wfs_catalog_n_tensors(check->catalog);
    struct wfs_workload *workload = NULL;
    autofree struct wfs_work *works = calloc(n + 1, sizeof(*works));
    for (size_t i = 0; i < n && works != NULL; i++)
        works[i].tensor = wfs_catalog_tensor(check->catalog, i);
    enum exit_code exit_code =
        input_workload(check->path, works, n, allows_large, INPUT_CHOOSE_FEWER, &workload);
    if (exit_code == EXIT_DONE)
        exit_code = check_all(check, workload);
    wfs_workload_free(workload);
    return exit_code;
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

static enum exit_code run(struct check *check, const struct args *args)
{
    enum exit_code exit_code = EXIT_DONE;
    size_t changed;
    for (size_t i = 0; i < wfs_catalog_n_findings(check->catalog); i++) {
        const struct wfs_finding *finding = wfs_catalog_finding(check->catalog, i);
        report(check, finding->severity, finding->text);
    }
    survey(check);
    if (args_has(args, "values")) {
        progress_start(&check->progress, "checking", check->n_bytes);
        exit_code = check_values(check, args_has(args, "large"));
        progress_end(&check->progress);
    }
    if (exit_code == EXIT_DONE && wfs_catalog_check_sources(check->catalog, &changed) < 0)
        exit_code = print_error(EXIT_DAMAGED, check->path, "the file changed while it was read");
    if (exit_code == EXIT_DONE && check->worst >= WFS_LOW)
        exit_code = EXIT_FOUND;
    return exit_code;
}

static enum exit_code run_json(struct check *check, const struct args *args)
{
    check->json = (struct json_out){.file = stdout, .spelling = JSON_ASCII};
    json_out_open_object(&check->json, NULL);
    json_out_text(&check->json, "file", check->path);
    json_out_u64(&check->json, "n_tensors", wfs_catalog_n_tensors(check->catalog));
    json_out_open_array(&check->json, "findings");
    const enum exit_code exit_code = run(check, args);
    json_out_close(&check->json);
    json_out_close(&check->json);
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

static enum exit_code run_check(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct check check = {.path = args->operands[0], .worst = WFS_INFO};
    enum exit_code exit_code = input_load(args, check.path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    exit_code = verify(check.path, catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    check.catalog = catalog;
    if (args_has(args, "json"))
        return run_json(&check, args);
    exit_code = run(&check, args);
    if (exit_code == EXIT_DONE && isatty(STDOUT_FILENO))
        printf("no problems in %s\n", wfs_count(wfs_catalog_n_tensors(catalog), "tensor").text);
    return exit_code;
}

static const struct args_option check_options[] = {
    {"json", NULL, "print one JSON object"},
    {"large", NULL, INPUT_LARGE_HELP},
    {"values", NULL, "read all tensors and look for NaN and infinities"},
    {NULL, NULL, NULL},
};

const struct verb verb_check = {
    .name = "check",
    .operands = "SOURCE",
    .text = "Check a checkpoint for damage and oddities. Prints one line for each finding:\n"
            "its severity (info, low, medium or high) and a description. The exit code is 1\n"
            "if a finding is above info, and 3 to 6 if the checkpoint cannot be read.",
    .n_min = 1,
    .n_max = 1,
    .has_source = true,
    .options = check_options,
    .run = run_check,
};
