/* SPDX-License-Identifier: MIT */
/*
 * weightfs sum: SHA-256 and XXH3 of all tensors, as they are shown, and whether they are still
 * those of a manifest.
 */
#include "cli/args.h"
#include "cli/input.h"
#include "cli/manifest.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "program/threads.h"
#include "program/print.h"
#include "program/terminal.h"

#include <weightfs/catalog.h>
#include <weightfs/cleanup.h>
#include <weightfs/json_out.h>
#include <weightfs/strbuf.h>
#include <weightfs/workload.h>

#include <nettle/sha2.h>

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sums {
    char sha256[MANIFEST_N_SHA256 + 1];
    char xxh3[MANIFEST_N_XXH3 + 1];
};

enum { N_SHA256 = MANIFEST_N_SHA256 / 2 /* bytes */ };

/* One source whose sums are made. */
struct sum {
    const char *path;
    const struct args *args;
    const struct args *globs; /* the operands that choose tensors; NULL: all are chosen */
    struct json_out *json;    /* NULL: lines, or a table */
    bool is_screen;           /* people get a table, with the first digits */
    struct table table;
    bool names_source; /* in each line of a check, above a table */
    /* Of a check. */
    const struct manifest *manifest;
    const struct manifest_part *part;
    uint64_t n_equal, n_different, n_missing, n_extra;
    enum exit_code exit_code; /* of tensors that cannot be read */
    /* While they are made. */
    const struct wfs_tensor **tensors;
    size_t n_tensors;
    struct progress progress;
    struct pool pool;
};

/* ---- one tensor ---- */

struct reading {
    struct sum *sum;
    struct sha256_ctx sha256;
};

static int add_piece(void *ctx, const void *bytes, size_t n_bytes)
{
    struct reading *reading = ctx;
    sha256_update(&reading->sha256, n_bytes, bytes);
    progress_add(&reading->sum->progress, n_bytes);
    return reading->sum->pool.is_stopped ? -ECANCELED : 0;
}

static struct sum *sum_of(struct pool *pool)
{
    return (struct sum *)((char *)pool - offsetof(struct sum, pool));
}

static int make_sums(struct pool *pool, size_t i, void *result)
{
    uint64_t xxh3;
    unsigned char sha256[N_SHA256];
    struct sums *ret = result;
    struct reading reading = {.sum = sum_of(pool)};
    const struct wfs_tensor *tensor = reading.sum->tensors[i];
    sha256_init(&reading.sha256);
    const int code = wfs_tensor_digest_and(&pool->io, tensor, add_piece, &reading, &xxh3);
    if (code < 0)
        return code;
    sha256_digest(&reading.sha256, N_SHA256, sha256);
    for (size_t k = 0; k < N_SHA256; k++)
        snprintf(ret->sha256 + 2 * k, 3, "%02x", sha256[k]);
    snprintf(ret->xxh3, sizeof(ret->xxh3), "%016" PRIx64, xxh3);
    return 0;
}

/* ---- printing ---- */

/* Prints a name without blanks. */
static int print_word(const char *name)
{
    autostrbuf struct strbuf text = {0};
    strbuf_escape(&text, name, strlen(name));
    if (text.has_failed)
        return -ENOMEM;
    for (const char *at = text.bytes; at != NULL && *at != '\0'; at++) {
        if (*at == ' ')
            fputs("\\x20", stdout);
        else
            putchar(*at);
    }
    return 0;
}

static int print_line_of(const struct wfs_tensor *tensor, const struct sums *sums)
{
    printf("%s\t%s\t%s\t", sums->sha256, sums->xxh3, wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    print_shape(stdout, &tensor->shape);
    putchar('\t');
    const int code = print_word(tensor->key);
    putchar('\n');
    return code;
}

enum { N_DIGITS = 12 /* that people compare */ };

static const struct table_column columns[] = {
    {.heading = "key", .is_key = true},
    {.heading = "SHA-256", .stays = true},
    {.heading = "XXH3"},
    {.heading = "dtype"},
    {.heading = "shape"},
};

static void add_row(struct table *table, const struct wfs_tensor *tensor, const struct sums *sums)
{
    char digits[N_DIGITS + 1];
    table_name(table, COLOUR_NONE, tensor->key);
    snprintf(digits, sizeof(digits), "%.*s", N_DIGITS, sums->sha256);
    table_text(table, COLOUR_NONE, digits);
    snprintf(digits, sizeof(digits), "%.*s", N_DIGITS, sums->xxh3);
    table_text(table, COLOUR_NONE, digits);
    table_text(table, COLOUR_DTYPE, wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    table_shape(table, &tensor->shape);
}

static void json_line(struct json_out *json, const struct wfs_tensor *tensor,
                      const struct sums *sums)
{
    json_out_open_object(json, NULL);
    print_json_tensor(json, tensor);
    json_out_text(json, "sha256", sums->sha256);
    json_out_text(json, "xxh3", sums->xxh3);
    json_out_close(json);
}

static int print_sums(struct pool *pool, size_t i, const void *sums)
{
    struct sum *sum = sum_of(pool);
    const struct wfs_tensor *tensor = sum->tensors[i];
    int code = 0;
    if (sum->json != NULL)
        json_line(sum->json, tensor, sums);
    else if (sum->is_screen)
        add_row(&sum->table, tensor, sums);
    else
        code = print_line_of(tensor, sums);
    return ferror(stdout) ? -EPIPE : code;
}

/* ---- checking ---- */

static void print_source(const struct sum *sum)
{
    if (!sum->names_source)
        return;
    print_escaped(stdout, sum->path);
    fputs(": ", stdout);
}

static void begin_difference(const struct sum *sum, const char *key)
{
    print_source(sum);
    fputs(screen_on(STDOUT_FILENO, COLOUR_CHANGED), stdout);
    print_escaped(stdout, key);
    fputs(screen_off(STDOUT_FILENO, COLOUR_CHANGED), stdout);
    fputs(": ", stdout);
}

/* Compares with "[2,3]". */
static bool has_shape(const struct wfs_tensor *tensor, const char *shape)
{
    autostrbuf struct strbuf text = {0};
    strbuf_puts(&text, "[");
    for (uint32_t i = 0; i < tensor->shape.rank; i++)
        strbuf_printf(&text, "%s%" PRIu64, i > 0 ? "," : "", tensor->shape.dims[i]);
    strbuf_puts(&text, "]");
    return !text.has_failed && strcmp(text.bytes, shape) == 0;
}

static void print_difference(const struct sum *sum, const struct wfs_tensor *tensor,
                             const struct manifest_line *line, bool has_kind, bool has_content)
{
    begin_difference(sum, tensor->key);
    if (!has_kind) {
        printf("is %s ", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
        print_shape(stdout, &tensor->shape);
        fputs(", not ", stdout);
        print_escaped(stdout, line->dtype);
        putchar(' ');
        print_escaped(stdout, line->shape);
    }
    printf("%s%s\n", has_kind || has_content ? "" : "; ", has_content ? "" : "its content differs");
}

static int check_sums(struct pool *pool, size_t i, const void *result)
{
    struct sum *sum = sum_of(pool);
    const struct sums *sums = result;
    const struct wfs_tensor *tensor = sum->tensors[i];
    struct manifest_line *line = manifest_find(sum->manifest, sum->part, tensor->key);
    if (line == NULL) {
        sum->n_extra++;
        begin_difference(sum, tensor->key);
        puts("is not in the manifest");
        return ferror(stdout) ? -EPIPE : 0;
    }
    const bool has_content =
        strcmp(line->sha256, sums->sha256) == 0 && strcmp(line->xxh3, sums->xxh3) == 0;
    const bool has_kind = strcmp(line->dtype, wfs_dtype_name((enum wfs_dtype)tensor->dtype)) == 0 &&
                          has_shape(tensor, line->shape);
    line->is_seen = true;
    sum->n_equal += has_content && has_kind;
    sum->n_different += !has_content || !has_kind;
    if (!has_content || !has_kind)
        print_difference(sum, tensor, line, has_kind, has_content);
    return ferror(stdout) ? -EPIPE : 0;
}

/* A tensor of which no sum can be made is not what the manifest has. */
static int skip(struct pool *pool, size_t i, int code)
{
    struct sum *sum = sum_of(pool);
    const struct wfs_tensor *tensor = sum->tensors[i];
    struct manifest_line *line =
        sum->manifest == NULL ? NULL : manifest_find(sum->manifest, sum->part, tensor->key);
    if (line != NULL)
        line->is_seen = true;
    sum->n_different++;
    return input_skip(sum->path, tensor, code, &sum->exit_code);
}

/* Reports what is missing, and the counts. */
static enum exit_code finish_check(struct sum *sum)
{
    for (size_t i = sum->part->start; i < sum->part->end; i++) {
        struct manifest_line *line = &sum->manifest->lines[i];
        if (!line->is_seen) {
            sum->n_missing++;
            begin_difference(sum, line->key);
            puts("is missing");
        }
        line->is_seen = false; /* the source may be given twice */
    }
    print_source(sum);
    printf("%" PRIu64 " equal, %" PRIu64 " different, %" PRIu64 " missing, %" PRIu64
           " not in the manifest\n",
           sum->n_equal, sum->n_different, sum->n_missing, sum->n_extra);
    return sum->n_different + sum->n_missing + sum->n_extra > 0 ? EXIT_FOUND : EXIT_DONE;
}

/* ---- one source ---- */

static int begin(struct sum *sum)
{
    if (sum->manifest != NULL)
        return 0;
    if (sum->is_screen) {
        table_start(&sum->table, columns, sizeof(columns) / sizeof(columns[0]), sum->args);
        return 0;
    }
    if (sum->json != NULL) {
        json_out_open_object(sum->json, NULL);
        json_out_text(sum->json, "file", sum->path);
        json_out_open_array(sum->json, "tensors");
        return 0;
    }
    printf("# weightfs sum ");
    const int code = print_word(sum->path);
    putchar('\n');
    return code;
}

/* code: how far it came. */
static int end(struct sum *sum, int code)
{
    if (sum->manifest == NULL && sum->is_screen && code == 0) {
        if (sum->names_source) {
            print_escaped(stdout, sum->path);
            puts(":");
        }
        code = table_print(&sum->table);
        printf("%s, the first %d digits of each sum; whole in pipes and with --json\n",
               wfs_count(sum->n_tensors, "tensor").text, N_DIGITS);
        table_print_dropped(&sum->table);
    }
    table_done(&sum->table);
    if (sum->json != NULL) {
        json_out_close(sum->json);
        json_out_close(sum->json);
    }
    return code;
}

static enum exit_code make_all(struct sum *sum, const struct wfs_workload *workload)
{
    int code = begin(sum);
    sum->pool = (struct pool){.workload = workload,
                              .n = sum->n_tensors,
                              .n_result = sizeof(struct sums),
                              .make = make_sums,
                              .visit = sum->manifest != NULL ? check_sums : print_sums,
                              .fail = skip};
    progress_start(&sum->progress, "reading", wfs_workload_n_shown(workload));
    if (code == 0)
        code = pool_run(&sum->pool);
    progress_end(&sum->progress);
    code = end(sum, code);
    if (code == -ENOMEM)
        return print_memory(sum->path);
    if (code < 0 && code != -ECANCELED)
        return EXIT_OUTPUT; /* the line about the output comes at the end */
    const enum exit_code found = code == 0 && sum->manifest != NULL ? finish_check(sum) : EXIT_DONE;
    return sum->exit_code != EXIT_DONE ? sum->exit_code : found;
}

static enum exit_code choose(struct sum *sum, const struct wfs_catalog *catalog,
                             struct wfs_workload **out)
{
    static const struct args none;
    const size_t n = wfs_catalog_n_tensors(catalog);
    const char *unmatched = NULL;
    autofree struct wfs_work *works = calloc(n + 1, sizeof(*works));
    autofree bool *marks =
        input_select(catalog, sum->globs != NULL ? sum->globs : &none, 0, &unmatched);
    if (works == NULL || marks == NULL)
        return print_memory(sum->path);
    if (unmatched != NULL)
        return input_unmatched(catalog, sum->path, unmatched);
    for (size_t i = 0; i < n; i++) {
        if (!marks[i])
            continue;
        works[sum->n_tensors] =
            (struct wfs_work){wfs_catalog_tensor(catalog, i), .reads_shown = true};
        sum->tensors[sum->n_tensors++] = wfs_catalog_tensor(catalog, i);
    }
    return input_workload(sum->path, works, sum->n_tensors, args_has(sum->args, "large"),
                          INPUT_CHOOSE_FEWER, out);
}

static enum exit_code sum_source(struct sum *sum)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct wfs_workload *workload = NULL;
    enum exit_code exit_code = input_load(sum->args, sum->path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    autofree const struct wfs_tensor **tensors =
        calloc(wfs_catalog_n_tensors(catalog) + 1, sizeof(*tensors));
    sum->tensors = tensors;
    exit_code = tensors != NULL ? choose(sum, catalog, &workload) : print_memory(sum->path);
    if (exit_code == EXIT_DONE)
        exit_code = make_all(sum, workload);
    wfs_workload_free(workload);
    return exit_code;
}

/* ---- all sources ---- */

static enum exit_code print_one(const struct input_one *one)
{
    struct args globs = one->args;
    globs.operands++;
    globs.n_operands--;
    struct sum sum = {.path = one->args.operands[0],
                      .args = &one->args,
                      .globs = &globs,
                      .json = one->json,
                      .is_screen = one->json == NULL && screen_width(STDOUT_FILENO) > 0,
                      .names_source = one->is_of_many};
    return sum_source(&sum);
}

/* What does not exist chooses tensors, but for the first operand. JSON is a list even of one. */
static enum exit_code print_sources(const struct args *args)
{
    struct args sorted = *args;
    size_t n = 0, n_sources = 0;
    autofree const char **operands = calloc(args->n_operands + 1, sizeof(*operands));
    if (operands == NULL)
        return print_memory(NULL);
    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < args->n_operands; i++) {
            if ((i == 0 || input_is_source(args->operands[i])) == (pass == 0))
                operands[n++] = args->operands[i];
        }
        n_sources = pass == 0 ? n : n_sources;
    }
    sorted.operands = operands;
    return input_each(&sorted, n_sources, "sources", print_one);
}

static enum exit_code check_source(const struct args *args, const struct manifest *manifest,
                                   const struct manifest_part *part, const char *path,
                                   bool names_source)
{
    struct sum sum = {.path = path,
                      .args = args,
                      .names_source = names_source,
                      .manifest = manifest,
                      .part = part};
    return sum_source(&sum);
}

/* Returns the part of a source: the one with its name, or the only one; NULL: a line was printed.
 */
static const struct manifest_part *find_part(const struct manifest *manifest, const char *file,
                                             const char *path)
{
    for (size_t i = 0; i < manifest->n_parts; i++) {
        const struct manifest_part *part = &manifest->parts[i];
        if (part->source != NULL && strcmp(part->source, path) == 0)
            return part;
    }
    if (manifest->n_parts == 1)
        return &manifest->parts[0];
    print_error(EXIT_NO_MATCH, file, "it has the sums of %s, and none is called '%s'",
                wfs_count(manifest->n_parts, "source").text, wfs_quote(path).text);
    return NULL;
}

static enum exit_code check_parts(const struct args *args, const struct manifest *manifest)
{
    const size_t n = args->n_operands > 0 ? args->n_operands : manifest->n_parts;
    const char *file = args_value(args, "check");
    enum exit_code exit_code = EXIT_DONE;
    for (size_t i = 0; i < n && !ferror(stdout); i++) {
        const struct manifest_part *part = args->n_operands > 0
                                               ? find_part(manifest, file, args->operands[i])
                                               : &manifest->parts[i];
        if (part == NULL)
            return EXIT_NO_MATCH;
        const char *path = args->n_operands > 0 ? args->operands[i] : part->source;
        if (path == NULL)
            return print_error(EXIT_USAGE, file,
                               "it does not name the source of its lines: give it as SOURCE");
        const enum exit_code code = check_source(args, manifest, part, path, n > 1);
        exit_code = code > exit_code ? code : exit_code;
    }
    return exit_code;
}

static enum exit_code check(const struct args *args)
{
    const char *file = args_value(args, "check");
    auto_manifest struct manifest manifest = {0};
    struct wfs_error err = {0};
    const int code = manifest_read(file, &manifest, &err);
    if (code < 0)
        return print_error(exit_of_errno(-code), file, "%s", err.text);
    if (manifest.n_parts == 0)
        return print_error(EXIT_DAMAGED, file, "it has no line that 'weightfs sum' prints");
    return check_parts(args, &manifest);
}

static enum exit_code run_sum(const struct args *args)
{
    if (args_has(args, "check") && args_has(args, "json"))
        return print_error(EXIT_USAGE, NULL, "--check cannot be combined with --json");
    if (args_has(args, "check"))
        return check(args);
    if (args->n_operands == 0)
        return print_error(EXIT_USAGE, NULL, "missing SOURCE; usage: weightfs sum SOURCE...");
    return print_sources(args);
}

const struct verb verb_sum = {
    .operands = "[SOURCE...] [GLOB...]",
    .text = "Print SHA-256, XXH3 (64 bits), dtype, shape and key of each tensor, or of those\n"
            "that GLOBs or names of modules choose, which are not files. The sums are\n"
            "those of the elements as a mount shows them: equal tensors have equal sums in\n"
            "all formats. Blanks in keys are printed as \\x20. A terminal gets a table with\n"
            "the first digits. With --check, report each\n"
            "tensor that is not as a line of MANIFEST ('-': standard input) describes it,\n"
            "that is missing, or that no line describes; the exit code is 1 then. Without\n"
            "SOURCE, the files that MANIFEST names are checked.",
    .has_source = true,
    .options = {{"check", "MANIFEST", "compare with what 'sum' printed before"},
                {"json", NULL, "print JSON, as docs/json.md describes it"},
                {"large", NULL, INPUT_LARGE_HELP}},
    .run = run_sum,
};
