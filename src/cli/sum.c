/* SPDX-License-Identifier: MIT */
/*
 * weightfs sum: the sums of all tensors, and whether they are still those of a manifest.
 */
#include "cli/verbs.h"

#include "cli/input.h"
#include "cli/jsonout.h"
#include "cli/manifest.h"
#include "cli/progress.h"
#include "cli/sums.h"
#include "program/print.h"
#include "program/screen.h"

#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static const struct args_option options[] = {
    {"check", "MANIFEST", "compare with what 'sum' printed before"},
    {"json", NULL, "print one JSON object"},
    {"large", NULL, INPUT_LARGE_HELP},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "sum",
    .operands = "[SOURCE...]",
    .text = "Print SHA-256, XXH3 (64 bits), dtype, shape and key of each tensor. The sums are\n"
            "those of the elements as a mount shows them: equal tensors have equal sums in\n"
            "all formats. Blanks in keys are printed as \\x20. With --check, report each\n"
            "tensor that is not as a line of MANIFEST ('-': standard input) describes it,\n"
            "that is missing, or that no line describes; the exit code is 1 then. Without\n"
            "SOURCE, the files that MANIFEST names are checked.",
    .n_min = 0,
    .n_max = SIZE_MAX,
    .has_source = true,
    .options = options,
};

/* One source whose sums are made. */
struct sum {
    const char *path;
    const struct args *args;
    struct jsonout *json; /* NULL: lines */
    char separator;       /* between the fields of a line */
    bool names_source;    /* in each line of a check */
    /* Of a check. */
    const struct manifest *manifest;
    const struct manifest_part *part;
    uint64_t n_equal, n_different, n_missing, n_extra;
};

/* ---- printing ---- */

/* Prints a name without blanks. */
static int print_word(const char *name)
{
    autostrbuf struct strbuf text = {0};
    screen_escape(&text, name, strlen(name));
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

static int print_line_of(const struct sum *sum, const struct wfs_tensor *tensor,
                         const struct sums *sums)
{
    const char c = sum->separator;
    printf("%s%c%s%c%s%c", sums->sha256, c, sums->xxh3, c,
           wfs_dtype_name((enum wfs_dtype)tensor->dtype), c);
    print_shape(stdout, &tensor->shape);
    putchar(c);
    const int code = print_word(tensor->key);
    putchar('\n');
    return code;
}

static void json_line(struct jsonout *json, const struct wfs_tensor *tensor,
                      const struct sums *sums)
{
    jsonout_open_object(json, NULL);
    jsonout_text(json, "key", tensor->key);
    jsonout_text(json, "dtype", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    jsonout_shape(json, "shape", &tensor->shape);
    jsonout_u64(json, "bytes", tensor->n_bytes);
    jsonout_text(json, "sha256", sums->sha256);
    jsonout_text(json, "xxh3", sums->xxh3);
    jsonout_close_object(json);
}

static int print_sums(void *ctx, const struct wfs_tensor *tensor, const struct sums *sums)
{
    const struct sum *sum = ctx;
    int code = 0;
    if (sum->json != NULL)
        json_line(sum->json, tensor, sums);
    else
        code = print_line_of(sum, tensor, sums);
    return ferror(stdout) ? -EPIPE : code;
}

/* ---- checking ---- */

static void begin_difference(const struct sum *sum, const char *key)
{
    if (sum->names_source) {
        print_escaped(stdout, sum->path);
        fputs(": ", stdout);
    }
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

static int check_sums(void *ctx, const struct wfs_tensor *tensor, const struct sums *sums)
{
    struct sum *sum = ctx;
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
    if (sum->names_source) {
        print_escaped(stdout, sum->path);
        fputs(": ", stdout);
    }
    printf("%" PRIu64 " equal, %" PRIu64 " different, %" PRIu64 " missing, %" PRIu64
           " not in the manifest\n",
           sum->n_equal, sum->n_different, sum->n_missing, sum->n_extra);
    return sum->n_different + sum->n_missing + sum->n_extra > 0 ? EXIT_FOUND : EXIT_DONE;
}

/* ---- one source ---- */

static int begin(const struct sum *sum)
{
    if (sum->manifest != NULL)
        return 0;
    if (sum->json != NULL) {
        jsonout_open_object(sum->json, NULL);
        jsonout_text(sum->json, "file", sum->path);
        jsonout_open_array(sum->json, "tensors");
        return 0;
    }
    printf("# weightfs sum ");
    const int code = print_word(sum->path);
    putchar('\n');
    return code;
}

static void end(const struct sum *sum)
{
    if (sum->json != NULL) {
        jsonout_close_array(sum->json);
        jsonout_close_object(sum->json);
    }
}

static enum exit_code make(struct sum *sum, const struct wfs_catalog *catalog,
                           const struct wfs_workload *workload)
{
    const struct wfs_tensor *failed = NULL;
    struct progress progress;
    int code = begin(sum);
    progress_start(&progress, "reading", wfs_workload_n_shown(workload));
    if (code == 0)
        code = sums_make(catalog, workload, &progress,
                         sum->manifest != NULL ? check_sums : print_sums, sum, &failed);
    progress_end(&progress);
    end(sum);
    if (code == -ENOMEM)
        return print_error(EXIT_UNSUPPORTED, sum->path, "out of memory");
    if (code < 0 && failed != NULL)
        return input_read_error(sum->path, failed, code);
    return code < 0 ? EXIT_OUTPUT : EXIT_DONE; /* the line about the output comes at the end */
}

static enum exit_code sum_source(struct sum *sum)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct wfs_workload *workload = NULL;
    enum exit_code exit_code = input_load(sum->args, sum->path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const size_t n = wfs_catalog_n_tensors(catalog);
    autofree struct wfs_work *works = calloc(n + 1, sizeof(*works));
    for (size_t i = 0; works != NULL && i < n; i++)
        works[i] = (struct wfs_work){wfs_catalog_tensor(catalog, i), .reads_shown = true};
    exit_code = input_workload(sum->path, works, n, args_has(sum->args, "large"),
                               INPUT_CHOOSE_FEWER, &workload);
    if (exit_code == EXIT_DONE)
        exit_code = make(sum, catalog, workload);
    wfs_workload_free(workload);
    return exit_code;
}

/* ---- all sources ---- */

/* A source that fails does not keep the others from being read. */
static enum exit_code print_sources(const struct args *args)
{
    struct jsonout json = {.file = stdout};
    const bool is_json = args_has(args, "json");
    enum exit_code exit_code = EXIT_DONE;
    if (is_json) {
        jsonout_open_object(&json, NULL);
        jsonout_open_array(&json, "sources");
    }
    for (size_t i = 0; i < args->n_operands && !ferror(stdout); i++) {
        struct sum sum = {.path = args->operands[i],
                          .args = args,
                          .json = is_json ? &json : NULL,
                          .separator = screen_width(STDOUT_FILENO) > 0 ? ' ' : '\t'};
        const enum exit_code code = sum_source(&sum);
        exit_code = code > exit_code ? code : exit_code;
    }
    if (is_json) {
        jsonout_close_array(&json);
        jsonout_close_object(&json);
    }
    return exit_code;
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
    const enum exit_code exit_code = sum_source(&sum);
    return exit_code == EXIT_DONE ? finish_check(&sum) : exit_code;
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

int verb_sum(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    if (args_has(&args, "check") && args_has(&args, "json"))
        return print_error(EXIT_USAGE, NULL, "--check cannot be combined with --json");
    if (args_has(&args, "check"))
        return (int)check(&args);
    if (args.n_operands == 0)
        return print_error(EXIT_USAGE, NULL, "missing SOURCE; usage: weightfs sum SOURCE...");
    return (int)print_sources(&args);
}
