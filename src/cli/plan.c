/* SPDX-License-Identifier: MIT */
/*
 * weightfs plan: what the view options would do.
 */
#include "cli/args.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "program/commit.h"
#include "program/key_tree.h"
#include "program/print.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/view.h>

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cells of a row as it is written; a terminal has no new key, but a line below the old one. */
enum { OLD_KEY, NEW_KEY, DTYPE, SHAPE, CLASS, CERTAINTY, ROW, WHY, N_CELLS };

static const struct table_column columns[] = {
    {.heading = "key", .is_key = true},
    {.heading = "why", .stays = true, .n_least = 16},
    {.heading = "dtype"},
    {.heading = "shape"},
    {.heading = "class"},
    {.heading = "certainty"},
    {.heading = "row"},
};

static const unsigned shown[] = {OLD_KEY, WHY, DTYPE, SHAPE, CLASS, CERTAINTY, ROW};

enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]), N_NUMBERS = 6 };

/* The components of a key that are numbers, in order. */
struct numbers {
    size_t n;
    uint64_t at[N_NUMBERS];
};

/* A row of the plan. */
struct step {
    char *cells[N_CELLS]; /* borrowed */
    char *pattern;        /* the cells, with "#" for numbers of keys; malloc'ed */
    struct numbers old, new;
    size_t rank; /* in the order of keys */
};

/* Rows that differ in nothing but numbers, of which all in a range occur. */
struct fold {
    const struct step *first;
    struct numbers last; /* the largest in the old keys */
};

struct steps {
    struct step *items;
    size_t n, n_room;
    struct fold *folds;
    size_t n_folds;
    uint64_t n_renamed, n_dropped;
};

static void steps_done(struct steps *steps)
{
    for (size_t i = 0; i < steps->n; i++)
        free(steps->items[i].pattern);
    free(steps->items);
    free(steps->folds);
}

static bool is_number(const char *component, size_t n)
{
    return n > 0 && n < 10 && strspn(component, "0123456789") >= n && (n == 1 || *component != '0');
}

/* Adds a key with "#" for its numbers. */
static void add_pattern(struct strbuf *out, const char *key, struct numbers *ret)
{
    for (size_t at = 0, n; key[at] != '\0'; at += n) {
        n = strcspn(key + at, ".");
        if (ret->n < N_NUMBERS && is_number(key + at, n)) {
            ret->at[ret->n++] = strtoull(key + at, NULL, 10);
            strbuf_puts(out, "#");
        } else {
            strbuf_add(out, key + at, n);
        }
        if (key[at + n] == '.') {
            strbuf_puts(out, ".");
            n++;
        }
    }
}

/* Adds a row, which ends with a NUL; its tabs are overwritten. -ENOMEM. */
static int add_step(struct steps *steps, char *text)
{
    struct strbuf pattern = {0};
    if (array_reserve(&steps->items, sizeof(*steps->items), steps->n, 1, &steps->n_room) < 0)
        return -ENOMEM;
    struct step *step = &steps->items[steps->n];
    *step = (struct step){0};
    for (size_t i = 0; i < N_CELLS; i++)
        step->cells[i] = text != NULL ? strsep(&text, "\t") : "";
    add_pattern(&pattern, step->cells[OLD_KEY], &step->old);
    strbuf_puts(&pattern, "\t");
    add_pattern(&pattern, step->cells[NEW_KEY], &step->new);
    for (size_t i = DTYPE; i < N_CELLS; i++)
        strbuf_printf(&pattern, "\t%s", step->cells[i]);
    step->pattern = pattern.bytes;
    if (pattern.has_failed) {
        strbuf_done(&pattern);
        return -ENOMEM;
    }
    const bool is_dropped = strcmp(step->cells[NEW_KEY], "-") == 0;
    steps->n++;
    steps->n_dropped += is_dropped;
    steps->n_renamed += !is_dropped && strcmp(step->cells[OLD_KEY], step->cells[NEW_KEY]) != 0;
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return order_of_keys(((const struct step *)a)->cells[OLD_KEY],
                         ((const struct step *)b)->cells[OLD_KEY]);
}

static int by_pattern(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    const int order = strcmp(x->pattern, y->pattern);
    return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_rank(const void *a, const void *b)
{
    const struct fold *x = a, *y = b;
    return (x->first->rank > y->first->rank) - (x->first->rank < y->first->rank);
}

/* Returns whether n steps of one pattern are all of a range of numbers, which new keys keep. */
static bool is_range(const struct step *steps, size_t n, struct numbers *ret_last)
{
    const struct step *first = &steps[0];
    uint64_t n_all = 1;
    *ret_last = first->old;
    if (first->new.n != first->old.n && first->new.n > 0)
        return n == 1;
    for (size_t i = 1; i < n; i++) {
        for (size_t k = 0; k < first->old.n; k++) {
            if (steps[i].old.at[k] < first->old.at[k] ||
                (first->new.n > 0 &&
                 steps[i].new.at[k] - steps[i].old.at[k] != first->new.at[k] - first->old.at[k]))
                return false;
            if (steps[i].old.at[k] > ret_last->at[k])
                ret_last->at[k] = steps[i].old.at[k];
        }
        if (strcmp(steps[i].cells[OLD_KEY], steps[i - 1].cells[OLD_KEY]) == 0)
            return false;
    }
    for (size_t k = 0; k < first->old.n && n_all <= n; k++)
        n_all *= ret_last->at[k] - first->old.at[k] + 1;
    return n_all == n;
}

/* Folds the steps of one pattern: all of them, or what runs in their order can be. */
static void fold_group(struct steps *steps, size_t start, size_t end)
{
    struct numbers last, more;
    for (size_t i = start, n; i < end; i += n) {
        n = end - i;
        if (!is_range(&steps->items[i], n, &last)) {
            for (n = 1, last = steps->items[i].old;
                 i + n < end && is_range(&steps->items[i], n + 1, &more); n++)
                last = more;
        }
        steps->folds[steps->n_folds++] = (struct fold){&steps->items[i], last};
    }
}

/* -ENOMEM. */
static int fold_all(struct steps *steps)
{
    if (steps->n == 0)
        return 0;
    steps->folds = calloc(steps->n, sizeof(*steps->folds));
    if (steps->folds == NULL)
        return -ENOMEM;
    qsort(steps->items, steps->n, sizeof(*steps->items), by_key);
    for (size_t i = 0; i < steps->n; i++)
        steps->items[i].rank = i;
    qsort(steps->items, steps->n, sizeof(*steps->items), by_pattern);
    for (size_t i = 0, end; i < steps->n; i = end) {
        for (end = i + 1; end < steps->n; end++) {
            if (strcmp(steps->items[i].pattern, steps->items[end].pattern) != 0)
                break;
        }
        fold_group(steps, i, end);
    }
    qsort(steps->folds, steps->n_folds, sizeof(*steps->folds), by_rank);
    return 0;
}

/* Adds a key whose numbers run from those of its first step to these. */
static void add_key(struct strbuf *out, const char *key, const struct numbers *first,
                    const struct numbers *old, const struct numbers *last)
{
    size_t k = 0;
    for (size_t at = 0, n; key[at] != '\0'; at += n) {
        n = strcspn(key + at, ".");
        const bool is_range = k < first->n && is_number(key + at, n) && last->at[k] > old->at[k];
        if (is_range)
            strbuf_printf(out, "{%" PRIu64 "..%" PRIu64 "}", first->at[k],
                          first->at[k] + last->at[k] - old->at[k]);
        else
            strbuf_add(out, key + at, n);
        k += k < first->n && is_number(key + at, n);
        if (key[at + n] == '.') {
            strbuf_puts(out, ".");
            n++;
        }
    }
}

static void add_row(struct table *table, const struct fold *fold)
{
    const struct step *step = fold->first;
    const bool is_dropped = strcmp(step->cells[NEW_KEY], "-") == 0;
    const bool is_renamed = !is_dropped && strcmp(step->cells[OLD_KEY], step->cells[NEW_KEY]) != 0;
    struct strbuf key = {0}, below = {0};
    add_key(&key, step->cells[OLD_KEY], &step->old, &step->old, &fold->last);
    table_built(table, is_dropped ? COLOUR_REMOVED : COLOUR_NONE, &key);
    for (size_t i = 1; i < N_COLUMNS; i++) {
        const unsigned cell = shown[i];
        const enum screen_colour colour = cell == DTYPE                ? COLOUR_DTYPE
                                          : cell == WHY && !is_dropped ? COLOUR_CHANGED
                                                                       : COLOUR_NONE;
        table_text(table, colour, step->cells[cell][0] != '\0' ? step->cells[cell] : NULL);
    }
    if (!is_renamed)
        return;
    strbuf_puts(&below, "  -> ");
    add_key(&below, step->cells[NEW_KEY], &step->new, &step->old, &fold->last);
    table_below(table, COLOUR_CHANGED, &below);
}

static int print_folds(const struct steps *steps, const struct args *args)
{
    auto_table struct table table;
    table_start(&table, columns, N_COLUMNS, args);
    for (size_t i = 0; i < steps->n_folds; i++)
        add_row(&table, &steps->folds[i]);
    const int code = table_print(&table);
    if (code < 0)
        return code;
    printf("%s, %" PRIu64 " renamed, %" PRIu64 " dropped\n", wfs_count(steps->n, "tensor").text,
           steps->n_renamed, steps->n_dropped);
    table_print_dropped(&table);
    return 0;
}

/* Prints the plan, whose first row is a heading, as a table on a terminal. */
static int print_table(char *plan, const struct args *args)
{
    cleanup(steps_done) struct steps steps = {0};
    int code = 0;
    for (char *row = strchr(plan, '\n'), *next; code == 0 && row != NULL && row[1] != '\0';
         row = next) {
        next = strchr(++row, '\n');
        if (next != NULL)
            *next = '\0';
        code = add_step(&steps, row);
    }
    if (code == 0)
        code = fold_all(&steps);
    return code < 0 ? code : print_folds(&steps, args);
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
    return code == 0 ? EXIT_DONE : print_error(exit_of_errno(-code), path, "%s", err.text);
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
    .text = "Show what the view options would do to each tensor of SOURCE, and why: on a\n"
            "terminal as a table, in which layers with the same changes are one row and a\n"
            "new key is below the old one; in pipes with tabs between the columns. Writes\n"
            "nothing. The same view options can be given to a mount (-o NAME=VALUE) and to\n"
            "every verb that reads a SOURCE.",
    .has_source = true,
    .lists_views = true,
    .options = {{"format", "NAME", "also report what this format cannot store"},
                {"json", NULL, "print the full report as one JSON object"},
                {"large", NULL, INPUT_LARGE_HELP},
                {"null", NULL, "-0: print rows unescaped, each with a NUL"},
                {"report", NULL, "print a summary, at most ten entries per list"},
                {"values", NULL, "count overflow, NaN of casts and computed values"}},
    .run = run_plan,
};
