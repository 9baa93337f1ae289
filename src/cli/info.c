/* SPDX-License-Identifier: MIT */
/*
 * weightfs info, config and check: a summary of a checkpoint, its non-tensor contents, and damage
 * and oddities.
 */
#include "cli/blob.h"
#include "cli/args.h"
#include "cli/input.h"
#include "cli/key_tree.h"
#include "cli/pool.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/values.h"
#include "program/print.h"
#include "program/terminal.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/json_out.h>
#include <weightfs/value.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct totals {
    uint64_t n_tensors, n_bytes, n_elems;
};

struct info {
    const char *path;
    const struct wfs_catalog *catalog;
    struct json_out *json; /* NULL: text */
    struct key_tree tree;
    struct totals all;
    struct totals by_dtype[WFS_N_DTYPES];
};

static void count(struct totals *totals, const struct wfs_tensor *tensor)
{
    totals->n_tensors++;
    totals->n_bytes = input_add(totals->n_bytes, tensor->n_bytes);
    totals->n_elems = input_add(totals->n_elems, input_n_elems(tensor));
}

/* Returns false when out of memory. */
static bool collect(struct info *info)
{
    const size_t n = wfs_catalog_n_tensors(info->catalog);
    info->tree.tensors = calloc(n + 1, sizeof(*info->tree.tensors));
    if (info->tree.tensors == NULL)
        return false;
    info->tree.n_tensors = n;
    for (size_t i = 0; i < n; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(info->catalog, i);
        info->tree.tensors[i] = tensor;
        count(&info->all, tensor);
        count(&info->by_dtype[tensor->dtype], tensor);
    }
    key_tree_sort(&info->tree);
    return true;
}

/* Returns the first metadata text that names the writer of the file, or NULL. */
static const char *writer_of(const struct wfs_catalog *catalog)
{
    static const char *const names[] = {"producer", "writer", "framework", "format"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (const struct wfs_text *meta = wfs_catalog_meta(catalog); meta; meta = meta->next) {
            if (strcmp(meta->name, names[i]) == 0)
                return meta->value;
        }
    }
    return NULL;
}

/* ---- tables with bars, for a terminal ---- */

enum { N_BAR = 20, N_MOST = 16 /* rows of the table */ };

/* A narrow terminal has no room for the last ones. */
static const struct table_column columns[] = {
    {.is_key = true},
    {.heading = "size", .is_right = true, .stays = true},
    {.heading = "share", .is_right = true},
    {.heading = "elements", .is_right = true},
    {.heading = "tensors", .is_right = true},
    {.heading = "", .n_least = 4},
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
    table_bar(table, COLOUR_ADDED, share, N_BAR);
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
static int print_dtypes(const struct info *info, const struct args *args)
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

/* ---- lists, as text and as JSON ---- */

/* "SEVERITY: text", after the file unless that is NULL, or {"severity", "text"} as an item of the
 * open array. */
static void put_finding(struct json_out *json, const char *file, const struct wfs_finding *finding)
{
    static const struct {
        const char *name;
        enum screen_colour colour;
    } severities[] = {[WFS_INFO] = {"info", COLOUR_NONE},
                      [WFS_LOW] = {"low", COLOUR_WARNING},
                      [WFS_MEDIUM] = {"medium", COLOUR_WARNING},
                      [WFS_HIGH] = {"high", COLOUR_ERROR}};
    const char *severity = severities[finding->severity].name;
    if (json == NULL) {
        print_escaped(stdout, file != NULL ? file : "");
        fputs(file != NULL ? ": " : "", stdout);
        screen_paint(stdout, severities[finding->severity].colour, severity);
        fputs(": ", stdout);
        print_line(stdout, finding->text);
        return;
    }
    json_out_open_object(json, NULL);
    json_out_text(json, "severity", severity);
    json_out_text(json, "text", finding->text);
    json_out_close(json);
}

enum { N_SHOWN = 10 }; /* items of a list before "and N more" */

static void print_label(const char *label, size_t i)
{
    printf("%-11s ", i == 0 ? label : "");
}

static void begin_list(const struct info *info, const char *member, char bracket)
{
    if (info->json != NULL)
        json_out_open(info->json, member, bracket, JSON_AUTO);
}

static void end_list(const struct info *info, size_t n_items)
{
    if (info->json != NULL) {
        json_out_close(info->json);
    } else if (n_items > N_SHOWN) {
        print_label("", 1);
        printf("and %zu more\n", n_items - N_SHOWN);
    }
}

static void put_totals(const struct info *info, uint64_t n_tensors, uint64_t n_bytes)
{
    if (info->json != NULL) {
        json_out_u64(info->json, "tensors", n_tensors);
        json_out_u64(info->json, "bytes", n_bytes);
        json_out_close(info->json);
    } else {
        printf("%s, %s\n", wfs_count(n_tensors, "tensor").text, amount_of_bytes(n_bytes).text);
    }
}

static void list_dtypes(const struct info *info)
{
    size_t n = 0;
    begin_list(info, "dtypes", '{');
    for (int dtype = 0; dtype < WFS_N_DTYPES; dtype++) {
        const struct totals *totals = &info->by_dtype[dtype];
        const char *name = wfs_dtype_name((enum wfs_dtype)dtype);
        if (totals->n_tensors == 0)
            continue;
        if (info->json != NULL) {
            json_out_open_object(info->json, name);
        } else {
            print_label("dtypes:", n++);
            printf("%-8s ", name);
        }
        put_totals(info, totals->n_tensors, totals->n_bytes);
    }
    end_list(info, 0);
}

static void list_metadata(const struct info *info)
{
    size_t n = 0;
    begin_list(info, "metadata", '{');
    for (const struct wfs_text *meta = wfs_catalog_meta(info->catalog); meta != NULL;
         meta = meta->next, n++) {
        if (info->json != NULL) {
            json_out_text_n(info->json, meta->name, meta->value, meta->n_bytes);
        } else if (n < N_SHOWN) {
            print_label("metadata:", n);
            printf("%s = %s\n", wfs_quote(meta->name).text,
                   wfs_quote_n(meta->value, meta->n_bytes).text);
        }
    }
    end_list(info, n);
}

static void list_top_level(const struct info *info)
{
    const struct key_tree *tree = &info->tree;
    size_t n = 0;
    begin_list(info, "top_level", '[');
    for (size_t i = 0, end; i < tree->n_tensors; i = end, n++) {
        const char *key = tree->tensors[i]->key;
        const size_t n_name = key_tree_component(key, 0);
        end = key_tree_end(tree, i, tree->n_tensors, 0);
        if (info->json != NULL) {
            json_out_open_object(info->json, NULL);
            json_out_text_n(info->json, "name", key, n_name);
        } else if (n < N_SHOWN) {
            print_label("top level:", n);
            printf("%-16s ", n_name > 0 ? wfs_quote_n(key, n_name).text : "%");
        }
        if (info->json != NULL || n < N_SHOWN)
            put_totals(info, end - i, key_tree_n_bytes(tree, i, end));
    }
    end_list(info, n);
}

static void list_sources(const struct info *info)
{
    const size_t n = wfs_catalog_n_sources(info->catalog);
    begin_list(info, "sources", '[');
    for (size_t i = 0; i < n && (info->json != NULL || i < N_SHOWN); i++) {
        const char *path = wfs_catalog_source_path(info->catalog, i);
        const uint64_t n_bytes = wfs_catalog_source_bytes(info->catalog, i);
        bool is_remote;
        const uint64_t n_cached = wfs_catalog_source_cached(info->catalog, i, &is_remote);
        if (info->json != NULL) {
            json_out_open_object(info->json, NULL);
            json_out_text(info->json, "file", path);
            json_out_u64(info->json, "bytes", n_bytes);
            if (is_remote)
                json_out_u64(info->json, "cached", n_cached);
            json_out_close(info->json);
            continue;
        }
        print_label("sources:", i);
        print_escaped(stdout, path);
        printf(", %s", wfs_count(n_bytes, "byte").text);
        if (is_remote)
            printf(", %" PRIu64 " in the cache", n_cached);
        putchar('\n');
    }
    end_list(info, n);
}

static void list_findings(const struct info *info)
{
    const size_t n = wfs_catalog_n_findings(info->catalog);
    begin_list(info, "findings", '[');
    for (size_t i = 0; i < n && (info->json != NULL || i < N_SHOWN); i++) {
        if (info->json == NULL)
            print_label("findings:", i);
        put_finding(info->json, NULL, wfs_catalog_finding(info->catalog, i));
    }
    end_list(info, n);
}

/* ---- all of it ---- */

static void json_info(const struct info *info)
{
    struct json_out *out = info->json;
    json_out_open_object(out, NULL);
    json_out_text(out, "file", info->path);
    json_out_text(out, "container", wfs_catalog_container(info->catalog)->name);
    json_out_text(out, "format", wfs_catalog_format(info->catalog)->name);
    json_out_text(out, "writer", writer_of(info->catalog));
    json_out_u64(out, "n_tensors", info->all.n_tensors);
    json_out_u64(out, "n_bytes", info->all.n_bytes);
    json_out_u64(out, "n_elems", info->all.n_elems);
    list_dtypes(info);
    list_metadata(info);
    list_top_level(info);
    list_sources(info);
    list_findings(info);
    json_out_close(out);
}

static void print_field(const char *label, const char *text)
{
    if (text == NULL)
        return;
    print_label(label, 0);
    print_escaped(stdout, text);
    putchar('\n');
}

/* A terminal gets tables with bars in place of the lists of dtypes and of the top level. */
static enum exit_code print_info(const struct info *info, const struct args *args)
{
    const bool is_screen = screen_width(STDOUT_FILENO) > 0;
    print_field("file:", info->path);
    print_field("format:", wfs_catalog_format(info->catalog)->name);
    print_field("container:", wfs_catalog_container(info->catalog)->name);
    print_field("writer:", writer_of(info->catalog));
    printf("tensors:    %" PRIu64 "\n", info->all.n_tensors);
    printf("bytes:      %" PRIu64 " (%s)\n", info->all.n_bytes,
           amount_of_bytes(info->all.n_bytes).text);
    printf("elements:   %" PRIu64, info->all.n_elems);
    if (is_screen)
        printf(" (%s)", amount_of_count(info->all.n_elems).text);
    putchar('\n');
    if (!is_screen)
        list_dtypes(info);
    list_metadata(info);
    if (!is_screen)
        list_top_level(info);
    list_sources(info);
    list_findings(info);
    if (is_screen && (print_modules(&info->tree, args) < 0 || print_dtypes(info, args) < 0))
        return print_memory(info->path);
    return EXIT_DONE;
}

static enum exit_code info_one(const struct input_one *one)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    const struct args *args = &one->args;
    struct info info = {.path = args->operands[0], .json = one->json};
    enum exit_code exit_code = input_load(args, info.path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    info.catalog = catalog;
    if (!collect(&info))
        return print_memory(info.path);
    if (info.json != NULL)
        json_info(&info);
    else
        exit_code = print_info(&info, args);
    free(info.tree.tensors);
    if (one->is_of_many && info.json == NULL)
        putchar('\n');
    return exit_code;
}

static enum exit_code run_info(const struct args *args)
{
    return input_each(args, args->n_operands, false, info_one);
}

const struct verb verb_info = {
    .operands = "SOURCE...",
    .text = "Print a summary of a checkpoint: container, writer, counts, bytes, dtypes,\n"
            "metadata, structure, files and oddities; on a terminal with a bar for each\n"
            "module and dtype. Reads no tensor data.",
    .has_source = true,
    .options = {{"json", NULL, "print one JSON object, of several SOURCEs a list"}},
    .run = run_info,
};

/* ---- config ---- */

static enum exit_code run_config(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    autofree char *text = NULL;
    size_t n_bytes;
    struct wfs_error err = {0};
    const char *path = args->operands[0];
    enum exit_code exit_code = input_load(args, path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const char *key = args->n_operands > 1 ? args->operands[1] : NULL;
    int code = wfs_catalog_config(catalog, key, &text, &n_bytes, &err);
    autofree char *unescaped = code == -ENOENT ? input_unescape(key) : NULL;
    if (unescaped != NULL && strcmp(unescaped, key) != 0)
        code = wfs_catalog_config(catalog, unescaped, &text, &n_bytes, &err);
    if (code < 0)
        return print_error(code == -ENOENT ? EXIT_NO_MATCH : exit_of_errno(-code), path, "%s",
                           err.text);
    print_json(stdout, text, n_bytes);
    return EXIT_DONE;
}

const struct verb verb_config = {
    .operands = "SOURCE [KEY]",
    .text = "Print the non-tensor contents of a checkpoint as JSON: all of them, or those at\n"
            "the dotted KEY. Python objects are shown as {\"$python\": \"module.Class\", ...};\n"
            "they are never constructed.",
    .has_source = true,
    .is_json = true,
    .run = run_config,
};

/* ---- check ---- */

/* Tensors of which all elements are one number. */
struct alike {
    size_t n_zero, n_constant;
    struct strbuf zero, constant; /* the first names */
};

struct check {
    struct pool pool; /* first: its functions are given that */
    const char *path;
    const struct wfs_catalog *catalog;
    struct json_out *json; /* NULL: text */
    bool is_of_many;
    enum wfs_severity worst;
    struct progress progress;
    uint64_t n_looked_at;
    struct alike alike;
};

enum { N_PLACE_DIMS = 8 };

struct place {
    char text[160];
};

/* What is counted in a tensor. */
struct counts {
    bool has_numbers;
    struct wfs_odd odd;
};

static void report(struct check *check, enum wfs_severity severity, const char *text)
{
    const struct wfs_finding finding = {.severity = severity, .text = text};
    if (severity > check->worst)
        check->worst = severity;
    put_finding(check->json, check->is_of_many ? check->path : NULL, &finding);
}

/* Returns ", first at [3, 0]"; empty for a scalar, and where it would take long to find. */
static struct place find_first(const struct wfs_tensor *tensor, values_test test)
{
    struct place place = {""};
    uint64_t index, indices[N_PLACE_DIMS];
    const struct wfs_shape *shape = &tensor->shape;
    if (shape->rank == 0 || shape->rank > N_PLACE_DIMS || wfs_tensor_is_large(tensor) ||
        values_find(tensor, test, &index) <= 0)
        return place;
    for (uint32_t i = shape->rank; i-- > 0; index /= shape->dims[i])
        indices[i] = index % shape->dims[i];
    const struct wfs_shape found = {shape->rank, indices};
    char text[sizeof(place.text) - sizeof(", first at ")];
    if (wfs_shape_format(&found, text, sizeof(text)) < sizeof(text))
        snprintf(place.text, sizeof(place.text), ", first at %s", text);
    return place;
}

static void report_count(struct check *check, const struct wfs_tensor *tensor, const char *what,
                         values_test test, uint64_t n, uint64_t n_elems)
{
    char text[WFS_ERROR_TEXT_MAX];
    if (n == 0)
        return;
    snprintf(text, sizeof(text), "tensor '%s': %" PRIu64 " of %s %s %s%s",
             wfs_quote(tensor->key).text, n, wfs_count(n_elems, "element").text,
             n == 1 ? "is" : "are", what, find_first(tensor, test).text);
    report(check, WFS_MEDIUM, text);
}

/* Adds a tensor to those that a line is about; n is how many there are. */
static void add_alike(struct strbuf *names, size_t n, const struct wfs_tensor *tensor)
{
    enum { N_NAMED = 3 };
    if (n <= N_NAMED)
        strbuf_printf(names, "%s'%s'", n > 1 ? ", " : "", wfs_quote(tensor->key).text);
}

/* Reports tensors of which all elements are one number: as new ones are, and such that were never
 * read. */
static void report_alike(struct check *check, size_t n, struct strbuf *names, const char *what)
{
    enum { N_NAMED = 3 };
    char text[2 * WFS_ERROR_TEXT_MAX], more[48] = "";
    if (n > N_NAMED)
        snprintf(more, sizeof(more), " and %zu more", n - N_NAMED);
    if (n > 0 && !names->has_failed) {
        snprintf(text, sizeof(text), "%s %s %s: %s%s", wfs_count(n, "tensor").text,
                 n == 1 ? "has" : "have", what, names->bytes, more);
        report(check, WFS_INFO, text);
    }
    strbuf_done(names);
}

static void count_alike(struct alike *alike, const struct wfs_tensor *tensor,
                        const struct wfs_odd *odd)
{
    if (odd->n_elems < 2 || !odd->is_constant)
        return;
    if (odd->constant == 0)
        add_alike(&alike->zero, ++alike->n_zero, tensor);
    else
        add_alike(&alike->constant, ++alike->n_constant, tensor);
}

static int make_counts(struct pool *pool, size_t i, void *result)
{
    struct check *check = (struct check *)pool;
    const struct wfs_tensor *tensor = wfs_catalog_tensor(check->catalog, i);
    struct counts *counts = result;
    const int code = tensor->trouble != NULL
                         ? -EOPNOTSUPP
                         : wfs_tensor_count_odd(&pool->io, tensor, &counts->odd);
    counts->has_numbers = code == 0;
    progress_add(&check->progress, tensor->n_bytes);
    return code == -EOPNOTSUPP ? 0 : code;
}

static int report_counts(struct pool *pool, size_t i, const void *result)
{
    struct check *check = (struct check *)pool;
    const struct wfs_tensor *tensor = wfs_catalog_tensor(check->catalog, i);
    const struct counts *counts = result;
    const struct wfs_odd *odd = &counts->odd;
    if (!counts->has_numbers)
        return 0;
    report_count(check, tensor, "NaN", values_is_nan, odd->n_nan, odd->n_elems);
    report_count(check, tensor, "infinite", values_is_infinite, odd->n_inf, odd->n_elems);
    count_alike(&check->alike, tensor, odd);
    check->n_looked_at++;
    return ferror(stdout) ? -EPIPE : 0;
}

/* Reports NaN and infinities; a tensor that does not hold numbers has none. */
static enum exit_code check_values(struct check *check, const struct args *args)
{
    struct wfs_workload *workload = NULL;
    struct alike *alike = &check->alike;
    size_t failed;
    const enum exit_code exit_code =
        input_workload_all(args, check->path, check->catalog, false, &workload);
    if (exit_code != EXIT_DONE)
        return exit_code;
    check->pool = (struct pool){.workload = workload,
                                .n = wfs_catalog_n_tensors(check->catalog),
                                .n_result = sizeof(struct counts),
                                .make = make_counts,
                                .visit = report_counts};
    progress_start(&check->progress, "checking", wfs_workload_n_shown(workload));
    const int code = pool_run(&check->pool, &failed);
    progress_end(&check->progress);
    wfs_workload_free(workload);
    if (code == 0) {
        report_alike(check, alike->n_zero, &alike->zero, "only zeros");
        report_alike(check, alike->n_constant, &alike->constant, "the same number in all elements");
    }
    strbuf_done(&alike->zero);
    strbuf_done(&alike->constant);
    if (code < 0 && failed != SIZE_MAX)
        return input_read_error(check->path, wfs_catalog_tensor(check->catalog, failed), code);
    return code == -ENOMEM ? print_memory(check->path) : EXIT_DONE;
}

static void survey(struct check *check)
{
    for (size_t i = 0; i < wfs_catalog_n_tensors(check->catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(check->catalog, i);
        char text[WFS_ERROR_TEXT_MAX];
        if (tensor->trouble == NULL)
            continue;
        snprintf(text, sizeof(text), "tensor '%s': %s", wfs_quote(tensor->key).text,
                 tensor->trouble);
        report(check, WFS_HIGH, text);
    }
}

static int compare_folded(const void *a, const void *b)
{
    const char *const *one = a, *const *other = b;
    const int order = strcasecmp(*one, *other);
    return order != 0 ? order : strcmp(*one, *other);
}

/* Reports keys that are one name where case does not count, as on some filesystems. */
static enum exit_code check_case(struct check *check)
{
    const size_t n = wfs_catalog_n_tensors(check->catalog);
    autofree const char **keys = calloc(n + 1, sizeof(*keys));
    const char **first = NULL;
    size_t n_twins = 0;
    char text[WFS_ERROR_TEXT_MAX], more[48] = "";
    if (keys == NULL)
        return print_memory(check->path);
    for (size_t i = 0; i < n; i++)
        keys[i] = wfs_catalog_tensor(check->catalog, i)->key;
    qsort(keys, n, sizeof(*keys), compare_folded);
    for (size_t i = 1; i < n; i++) {
        if (strcasecmp(keys[i - 1], keys[i]) != 0)
            continue;
        first = first == NULL ? &keys[i - 1] : first;
        n_twins++;
    }
    if (n_twins > 1)
        snprintf(more, sizeof(more), " (and %zu more)", n_twins - 1);
    if (n_twins > 0) {
        snprintf(text, sizeof(text), "the keys '%s' and '%s' differ in case only%s",
                 wfs_quote(first[0]).text, wfs_quote(first[1]).text, more);
        report(check, WFS_INFO, text);
    }
    return EXIT_DONE;
}

/* Reports files of the cache of Hugging Face whose content is not what their names say. */
static enum exit_code check_blobs(struct check *check)
{
    char text[WFS_ERROR_TEXT_MAX];
    for (size_t i = 0; i < wfs_catalog_n_sources(check->catalog); i++) {
        const char *path = wfs_catalog_source_path(check->catalog, i);
        const int code = blob_check(path);
        if (code < 0)
            return print_error(exit_of_errno(-code), path, "%s", strerror(-code));
        snprintf(text, sizeof(text),
                 "'%s' in the cache of Hugging Face has another SHA-256 than its name: it is "
                 "damaged; remove it and download it again",
                 wfs_quote(path).text);
        if (code > 0)
            report(check, WFS_HIGH, text);
    }
    return EXIT_DONE;
}

static enum exit_code check_run(struct check *check, const struct args *args)
{
    size_t changed;
    for (size_t i = 0; i < wfs_catalog_n_findings(check->catalog); i++) {
        const struct wfs_finding *finding = wfs_catalog_finding(check->catalog, i);
        report(check, finding->severity, finding->text);
    }
    survey(check);
    enum exit_code exit_code = check_case(check);
    if (exit_code == EXIT_DONE)
        exit_code = check_blobs(check);
    if (exit_code == EXIT_DONE && args_has(args, "values"))
        exit_code = check_values(check, args);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (wfs_catalog_check_sources(check->catalog, &changed) < 0)
        return print_error(EXIT_DAMAGED, check->path, "the file changed while it was read");
    return check->worst >= WFS_LOW ? EXIT_FOUND : EXIT_DONE;
}

static enum exit_code run_json(struct check *check, const struct args *args)
{
    struct json_out *json = check->json;
    json_out_open_object(json, NULL);
    json_out_text(json, "file", check->path);
    json_out_u64(json, "n_tensors", wfs_catalog_n_tensors(check->catalog));
    json_out_open_array(json, "findings");
    const enum exit_code exit_code = check_run(check, args);
    json_out_close(json);
    if (args_has(args, "values"))
        json_out_u64(json, "n_looked_at", check->n_looked_at);
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
    struct check check = {.path = args->operands[0],
                          .json = one->json,
                          .is_of_many = one->is_of_many,
                          .worst = WFS_INFO};
    enum exit_code exit_code = input_load(args, check.path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    exit_code = verify(check.path, catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    check.catalog = catalog;
    if (check.json != NULL)
        return run_json(&check, args);
    exit_code = check_run(&check, args);
    if (exit_code == EXIT_DONE && isatty(STDOUT_FILENO)) {
        print_escaped(stdout, check.is_of_many ? check.path : "");
        printf("%sno problems in %s\n", check.is_of_many ? ": " : "",
               wfs_count(wfs_catalog_n_tensors(catalog), "tensor").text);
    }
    return exit_code;
}

static enum exit_code run_check(const struct args *args)
{
    return input_each(args, args->n_operands, false, check_one);
}

const struct verb verb_check = {
    .operands = "SOURCE...",
    .text = "Check a checkpoint for damage and oddities. Prints one line for each finding:\n"
            "its severity (info, low, medium or high) and a description. The exit code is 1\n"
            "if a finding is above info, and 3 to 6 if the checkpoint cannot be read.",
    .has_source = true,
    .options = {{"json", NULL, "print one JSON object, of several SOURCEs a list"},
                {"large", NULL, INPUT_LARGE_HELP},
                {"values", NULL, "read all tensors: NaN, infinities, equal elements"}},
    .run = run_check,
};
