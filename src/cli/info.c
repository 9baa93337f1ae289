/* SPDX-License-Identifier: MIT */
/*
 * weightfs info and check: a summary of a checkpoint, and damage and oddities.
 */
#include "cli/args.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/values.h"
#include "program/checkup.h"
#include "program/key_tree.h"
#include "program/print.h"
#include "program/summary.h"
#include "program/terminal.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/json_out.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- tables with bars, for a terminal ---- */

enum { N_BAR = 20, N_SHORT_BAR = 10, N_WIDE = 100 /* columns of a terminal */, N_MOST = 16 };

/* A narrow terminal has no room for the last ones. */
static const struct table_column columns[] = {
    {.is_key = true},
    {.heading = "size", .is_right = true, .stays = true},
    {.heading = "share", .is_right = true},
    {.heading = "elements", .is_right = true},
    {.heading = "tensors", .is_right = true},
    {.heading = ""},
};

enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* A table whose first column has the heading; the columns must last as long. */
static void start(struct table *table, struct table_column own[N_COLUMNS], const char *heading,
                  const struct args *args)
{
    memcpy(own, columns, sizeof(columns));
    own[0].heading = heading;
    table_start(table, own, N_COLUMNS, args);
}

/* All cells but the name. n_all: the bytes of all rows. */
static void add_totals(struct table *table, const struct totals *totals, uint64_t n_all)
{
    char share_text[16];
    const double share = n_all > 0 ? (double)totals->n_bytes / (double)n_all : 0;
    snprintf(share_text, sizeof(share_text), "%.1f%%", 100 * share);
    table_bytes(table, totals->n_bytes);
    table_text(table, COLOUR_NONE, share_text);
    table_count(table, totals->n_elems);
    table_count(table, totals->n_tensors);
    table_bar(table, COLOUR_ADDED, share, table->n_screen < N_WIDE ? N_SHORT_BAR : N_BAR);
}

static int by_size(const void *a, const void *b)
{
    const struct module *x = a, *y = b;
    if (x->n_bytes != y->n_bytes)
        return x->n_bytes > y->n_bytes ? -1 : 1;
    return (x->run.start > y->run.start) - (x->run.start < y->run.start);
}

/* Prints the modules of the sorted tree, the largest first. Equal layers are one module. -ENOMEM.
 */
static int print_modules(const struct key_tree *tree, const struct args *args)
{
    auto_table struct table table = {0};
    struct table_column own[N_COLUMNS];
    cleanup(modules_done) struct modules modules = {
        .tree = tree, .folds_equals = true, .n_most = N_MOST};
    const uint64_t n_all = key_tree_n_bytes(tree, 0, tree->n_tensors);
    int code = modules_find(&modules);
    if (code < 0 || modules.n_items == 0)
        return code;
    qsort(modules.items, modules.n_items, sizeof(*modules.items), by_size);
    start(&table, own, "module", args);
    for (size_t i = 0; i < modules.n_items && i < N_MOST; i++) {
        const struct key_run *run = &modules.items[i].run;
        const struct totals totals = {run->end - run->start, modules.items[i].n_bytes,
                                      key_tree_n_elems(tree, run->start, run->end)};
        struct strbuf name = {0};
        key_tree_name(tree, run, 0, &name);
        table_built(&table, COLOUR_NONE, &name);
        add_totals(&table, &totals, n_all);
    }
    putchar('\n');
    code = table_print(&table);
    if (code >= 0 && modules.n_items > N_MOST)
        printf("and %s\n", wfs_count(modules.n_items - N_MOST, "smaller one").text);
    return code < 0 ? code : 0;
}

/* Prints the totals of each dtype that occurs. -ENOMEM. */
static int print_dtypes(const struct summary *info, const struct args *args)
{
    auto_table struct table table;
    struct table_column own[N_COLUMNS];
    start(&table, own, "dtype", args);
    for (int dtype = 0; dtype < WFS_N_DTYPES; dtype++) {
        if (info->by_dtype[dtype].n_tensors == 0)
            continue;
        table_text(&table, COLOUR_NONE, wfs_dtype_name((enum wfs_dtype)dtype));
        add_totals(&table, &info->by_dtype[dtype], info->all.n_bytes);
    }
    putchar('\n');
    const int code = table_print(&table);
    return code < 0 ? code : 0;
}

/* ---- lists ---- */

/* "SEVERITY: text", after the file unless that is NULL. */
static void print_finding(const char *file, const struct wfs_finding *finding)
{
    static const enum screen_colour colours[] = {[WFS_INFO] = COLOUR_NONE,
                                                 [WFS_LOW] = COLOUR_WARNING,
                                                 [WFS_MEDIUM] = COLOUR_WARNING,
                                                 [WFS_HIGH] = COLOUR_ERROR};
    print_escaped(stdout, file != NULL ? file : "");
    fputs(file != NULL ? ": " : "", stdout);
    screen_paint(stdout, colours[finding->severity], summary_severity(finding));
    fputs(": ", stdout);
    print_line(stdout, finding->text);
}

enum { N_SHOWN = 10 }; /* items of a list before "and N more" */

static void print_label(const char *label, size_t i)
{
    printf("%-11s ", i == 0 ? label : "");
}

static void end_list(size_t n_items)
{
    if (n_items > N_SHOWN) {
        print_label("", 1);
        printf("and %zu more\n", n_items - N_SHOWN);
    }
}

static void print_totals(uint64_t n_tensors, uint64_t n_bytes)
{
    printf("%s, %s\n", wfs_count(n_tensors, "tensor").text, amount_of_bytes(n_bytes).text);
}

static void list_dtypes(const struct summary *info)
{
    size_t n = 0;
    for (int dtype = 0; dtype < WFS_N_DTYPES; dtype++) {
        const struct totals *totals = &info->by_dtype[dtype];
        if (totals->n_tensors == 0)
            continue;
        print_label("dtypes:", n++);
        printf("%-8s ", wfs_dtype_name((enum wfs_dtype)dtype));
        print_totals(totals->n_tensors, totals->n_bytes);
    }
}

static void list_metadata(const struct summary *info)
{
    size_t n = 0;
    for (const struct wfs_text *meta = wfs_catalog_meta(info->catalog); meta != NULL;
         meta = meta->next, n++) {
        if (n >= N_SHOWN)
            continue;
        print_label("metadata:", n);
        printf("%s = %s\n", wfs_quote(meta->name).text,
               wfs_quote_n(meta->value, meta->n_bytes).text);
    }
    end_list(n);
}

static void list_top_level(const struct summary *info)
{
    const struct key_tree *tree = &info->tree;
    size_t n = 0;
    for (size_t i = 0, end; i < tree->n_tensors; i = end, n++) {
        const char *key = tree->tensors[i]->key;
        const size_t n_name = key_tree_component(key, 0);
        end = key_tree_end(tree, i, tree->n_tensors, 0);
        if (n >= N_SHOWN)
            continue;
        print_label("top level:", n);
        printf("%-16s ", n_name > 0 ? wfs_quote_n(key, n_name).text : "%");
        print_totals(end - i, key_tree_n_bytes(tree, i, end));
    }
    end_list(n);
}

static void list_sources(const struct summary *info)
{
    const size_t n = wfs_catalog_n_sources(info->catalog);
    for (size_t i = 0; i < n && i < N_SHOWN; i++) {
        bool is_remote;
        const uint64_t n_cached = wfs_catalog_source_cached(info->catalog, i, &is_remote);
        print_label("sources:", i);
        print_escaped(stdout, wfs_catalog_source_path(info->catalog, i));
        printf(", %s", wfs_count(wfs_catalog_source_bytes(info->catalog, i), "byte").text);
        if (is_remote)
            printf(", %" PRIu64 " in the cache", n_cached);
        putchar('\n');
    }
    end_list(n);
}

/* Below the tables of a terminal, harmless ones are only counted. */
static void print_findings(const struct summary *info)
{
    const size_t n = wfs_catalog_n_findings(info->catalog);
    size_t n_listed = 0, n_harmless = 0;
    for (size_t i = 0; i < n; i++)
        n_harmless += wfs_catalog_finding(info->catalog, i)->severity == WFS_INFO;
    if (n > 0)
        putchar('\n');
    for (size_t i = 0; i < n && n_listed < N_SHOWN; i++) {
        const struct wfs_finding *finding = wfs_catalog_finding(info->catalog, i);
        if (finding->severity == WFS_INFO)
            continue;
        print_label("findings:", n_listed++);
        print_finding(NULL, finding);
    }
    end_list(n - n_harmless);
    if (n_harmless > 0) {
        print_label("findings:", n_listed);
        printf("%s, listed by 'weightfs check'\n", wfs_count(n_harmless, "harmless finding").text);
    }
}

static void list_findings(const struct summary *info)
{
    const size_t n = wfs_catalog_n_findings(info->catalog);
    for (size_t i = 0; i < n && i < N_SHOWN; i++) {
        print_label("findings:", i);
        print_finding(NULL, wfs_catalog_finding(info->catalog, i));
    }
    end_list(n);
}

/* ---- all of it ---- */

static void print_field(const char *label, const char *text)
{
    if (text == NULL)
        return;
    print_label(label, 0);
    print_escaped(stdout, text);
    putchar('\n');
}

/* A terminal gets tables with bars in place of the lists of dtypes and of the top level. */
static enum exit_code print_info(const struct summary *info, const struct args *args)
{
    const bool is_screen = screen_width(STDOUT_FILENO) > 0;
    print_field("file:", info->path);
    print_field("format:", wfs_catalog_format(info->catalog)->name);
    print_field("container:", wfs_catalog_container(info->catalog)->name);
    print_field("writer:", summary_writer(info->catalog));
    model_config_put(NULL, info->catalog);
    if (is_screen && info->all.n_elems < 1000)
        printf("parameters: %" PRIu64 "\n", info->all.n_elems);
    else if (is_screen)
        printf("parameters: %s (%" PRIu64 ")\n", amount_of_count(info->all.n_elems).text,
               info->all.n_elems);
    printf("tensors:    %" PRIu64 "\n", info->all.n_tensors);
    printf("bytes:      %" PRIu64 " (%s)\n", info->all.n_bytes,
           amount_of_bytes(info->all.n_bytes).text);
    if (!is_screen) {
        printf("elements:   %" PRIu64 "\n", info->all.n_elems);
        list_dtypes(info);
    }
    list_metadata(info);
    if (!is_screen)
        list_top_level(info);
    list_sources(info);
    if (!is_screen) {
        list_findings(info);
        return EXIT_DONE;
    }
    if (print_modules(&info->tree, args) < 0 || print_dtypes(info, args) < 0)
        return print_memory(info->path);
    print_findings(info);
    return EXIT_DONE;
}

static enum exit_code info_one(const struct input_one *one)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    const struct args *args = &one->args;
    const char *path = args->operands[0];
    cleanup(summary_done) struct summary info = {0};
    enum exit_code exit_code = input_load(args, path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (summary_make(&info, path, catalog) < 0)
        return print_memory(path);
    if (one->json != NULL)
        summary_put(&info, one->json);
    else
        exit_code = print_info(&info, args);
    if (one->is_of_many && one->json == NULL)
        putchar('\n');
    return exit_code;
}

static enum exit_code run_info(const struct args *args)
{
    return input_each(args, args->n_operands, "sources", info_one);
}

const struct verb verb_info = {
    .operands = "SOURCE...",
    .text = "Print a summary of a checkpoint: container, writer, counts, bytes, dtypes,\n"
            "metadata, structure, files and oddities; on a terminal with a bar for each\n"
            "module and dtype. Reads no tensor data.",
    .has_source = true,
    .options = {{"json", NULL, "print JSON, as docs/json.md describes it"}},
    .run = run_info,
};

/* ---- check ---- */

/* Tensors of which all elements are one number. */
struct alike {
    size_t n_zero, n_constant;
    struct strbuf zero, constant; /* the first names */
};

struct check {
    struct checkup checkup;
    const char *path;
    struct json_out *json; /* NULL: text */
    bool is_of_many;
    struct progress progress;
};

static void put_line(void *ctx, const struct wfs_finding *finding)
{
    struct check *check = ctx;
    if (check->json != NULL)
        summary_put_finding(check->json, finding);
    else
        print_finding(check->is_of_many ? check->path : NULL, finding);
}

static int step(void *ctx, uint64_t n_bytes)
{
    struct check *check = ctx;
    progress_add(&check->progress, n_bytes);
    return ferror(stdout) ? -EPIPE : 0; /* the line about the output comes at the end */
}

static enum exit_code check_run(struct check *check)
{
    struct wfs_error err = {0};
    struct checkup *checkup = &check->checkup;
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(checkup->catalog); i++)
        n_bytes = input_add(n_bytes, wfs_catalog_tensor(checkup->catalog, i)->n_bytes);
    if (checkup->has_values)
        progress_start(&check->progress, "checking", n_bytes);
    const int code = checkup_run(checkup, &err);
    if (checkup->has_values)
        progress_end(&check->progress);
    if (code == -EPIPE)
        return EXIT_OUTPUT;
    if (code == -EFBIG)
        return input_workload_error(check->path, &err, INPUT_CHOOSE_FEWER);
    if (code < 0)
        return print_error(exit_of_errno(-code),
                           checkup->failed_path != NULL ? checkup->failed_path : check->path, "%s",
                           err.text);
    return checkup->worst >= WFS_LOW ? EXIT_FOUND : EXIT_DONE;
}

/* Prints what was looked at, on a terminal. */
static void print_total(const struct check *check, enum exit_code exit_code)
{
    const struct checkup *checkup = &check->checkup;
    const bool is_good = exit_code == EXIT_DONE;
    if (!isatty(STDOUT_FILENO) || (!is_good && (exit_code != EXIT_FOUND || !checkup->has_values)))
        return;
    print_escaped(stdout, check->is_of_many ? check->path : "");
    printf("%s%s%s", check->is_of_many ? ": " : "", is_good ? "no problems in " : "",
           wfs_count(wfs_catalog_n_tensors(checkup->catalog), "tensor").text);
    if (checkup->has_values)
        printf(", %" PRIu64 " looked at (%s)", checkup->n_looked_at,
               wfs_count(checkup->n_elems, "element").text);
    putchar('\n');
}

static enum exit_code run_json(struct check *check)
{
    struct json_out *json = check->json;
    json_out_open(json, NULL, '{', JSON_LINES);
    json_out_text(json, "file", check->path);
    json_out_u64(json, "n_tensors", wfs_catalog_n_tensors(check->checkup.catalog));
    json_out_open(json, "findings", '[', JSON_LINES);
    const enum exit_code exit_code = check_run(check);
    json_out_close(json);
    checkup_put(&check->checkup, json);
    json_out_close(json);
    return exit_code;
}

/* Adds wrong checksums to the findings. */
static enum exit_code verify(const char *path, struct wfs_catalog *catalog)
{
    struct wfs_error err = {0};
    struct progress progress;
    progress_start(&progress, "checking", input_source_bytes(catalog));
    const int code = wfs_verify(catalog, &err);
    progress_end(&progress);
    return code < 0 ? print_error(exit_of_errno(-code), path, "%s", err.text) : EXIT_DONE;
}

static enum exit_code check_one(const struct input_one *one)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    const struct args *args = &one->args;
    struct check check = {.checkup = {.has_values = args_has(args, "values"),
                                      .allows_large = args_has(args, "large"),
                                      .visit = put_line,
                                      .step = step,
                                      .ctx = &check},
                          .path = args->operands[0],
                          .json = one->json,
                          .is_of_many = one->is_of_many};
    enum exit_code exit_code = input_load(args, check.path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    exit_code = verify(check.path, catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    check.checkup.catalog = catalog;
    if (check.json != NULL)
        return run_json(&check);
    exit_code = check_run(&check);
    print_total(&check, exit_code);
    return exit_code;
}

static enum exit_code run_check(const struct args *args)
{
    return input_each(args, args->n_operands, "sources", check_one);
}

const struct verb verb_check = {
    .operands = "SOURCE...",
    .text = "Check a checkpoint for damage and oddities. Prints one line for each finding:\n"
            "its severity (info, low, medium or high) and a description. The exit code is 1\n"
            "if a finding is above info, and 3 to 6 if the checkpoint cannot be read.",
    .has_source = true,
    .options = {{"json", NULL, "print JSON, as docs/json.md describes it"},
                {"large", NULL, INPUT_LARGE_HELP},
                {"values", NULL, "read all tensors: NaN, infinities, equal elements"}},
    .run = run_check,
};
