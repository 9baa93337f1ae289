/* SPDX-License-Identifier: MIT */
/*
 * Loads a source for a verb and looks into it. A key may contain the characters of patterns: what
 * was typed is compared as it is, too.
 */
#include "cli/input.h"

#include "cli/progress.h"
#include "program/checkpoint.h"
#include "program/print.h"
#include "program/settings.h"
#include "program/suggestion.h"
#include "program/urls.h"

#include <weightfs/cleanup.h>
#include <weightfs/error.h>
#include <weightfs/value.h>
#include <weightfs/view.h>

#include <errno.h>
#include <fnmatch.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- globs ---- */

struct glob glob_of(const char *text)
{
    return (struct glob){text, input_unescape(text), false};
}

void glob_done(struct glob *glob)
{
    free(glob->unescaped);
}

/* Returns whether a name is the key or one of the modules above it. */
static bool is_at_or_above(const char *name, const char *key)
{
    const size_t n = strlen(name);
    return n > 0 ? strncmp(name, key, n) == 0 && (key[n] == '\0' || key[n] == '.') : *key == '\0';
}

bool glob_matches(struct glob *glob, const char *key)
{
    const bool matches = is_at_or_above(glob->text, key) || fnmatch(glob->text, key, 0) == 0 ||
                         (glob->unescaped != NULL && is_at_or_above(glob->unescaped, key));
    glob->has_matched |= matches;
    return matches;
}

bool *input_select(const struct wfs_catalog *catalog, const struct args *args, size_t n_skipped,
                   const char **ret_unmatched)
{
    const size_t n = wfs_catalog_n_tensors(catalog);
    bool *marks = calloc(n + 1, sizeof(*marks));
    if (marks == NULL)
        return NULL;
    for (size_t j = args->n_operands; j-- > n_skipped;) {
        cleanup(glob_done) struct glob glob = glob_of(args->operands[j]);
        for (size_t i = 0; i < n; i++)
            marks[i] |= glob_matches(&glob, wfs_catalog_tensor(catalog, i)->key);
        if (!glob.has_matched)
            *ret_unmatched = args->operands[j];
    }
    if (args->n_operands == n_skipped)
        memset(marks, true, n);
    return marks;
}

bool input_matches(const struct wfs_catalog *catalog, const char *glob)
{
    cleanup(glob_done) struct glob typed = glob_of(glob);
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog) && !typed.has_matched; i++)
        glob_matches(&typed, wfs_catalog_tensor(catalog, i)->key);
    return typed.has_matched;
}

enum exit_code input_unmatched(const struct wfs_catalog *catalog, const char *path,
                               const char *glob)
{
    const bool is_glob = strpbrk(glob, "*?[") != NULL;
    return print_error(EXIT_NO_MATCH, path, "no key matches '%s'%s", wfs_quote(glob).text,
                       is_glob ? " (a glob matches whole keys: '*' takes the rest)"
                               : suggestion_of_keys(catalog, glob, false).text);
}

/* ---- loading ---- */

static bool is_of_verb(const struct args *args, const char *name)
{
    const struct args_option *option = args->verb->options;
    while (option->name != NULL && strcmp(option->name, name) != 0)
        option++;
    return option->name != NULL;
}

/* The options of views are among those given; the library knows which. An option of the verb may
 * have the name of one. */
static enum exit_code make_view(const struct args *args, struct wfs_view **out,
                                struct wfs_error *err)
{
    char **texts = calloc(args->n_given + 1, sizeof(*texts));
    bool has_memory = texts != NULL;
    size_t n = 0;
    for (size_t i = 0; has_memory && i < args->n_given; i++) {
        const struct args_given *given = &args->given[i];
        if (is_of_verb(args, given->name))
            continue;
        has_memory = asprintf(&texts[n], "%s%s%s", given->name, given->value != NULL ? "=" : "",
                              given->value != NULL ? given->value : "") >= 0;
        texts[n] = has_memory ? texts[n] : NULL;
        n++;
    }
    enum exit_code exit_code = EXIT_UNSUPPORTED;
    if (has_memory)
        exit_code = checkpoint_new_view((const char *const *)texts, n, out, err);
    else
        (void)wfs_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
    free(texts);
    return exit_code;
}

/* A long list of rules may have many; the report has them all. */
static void print_warnings(const char *path, const struct wfs_report *report)
{
    enum { N_MOST = 10 };
    const char *about, *text;
    size_t n = 0;
    for (; (text = wfs_report_warning(report, n, &about)) != NULL; n++) {
        if (n < N_MOST)
            print_warning(path, about, text);
    }
    if (n > N_MOST)
        fprintf(stderr, "weightfs: and %s, which `weightfs plan` lists\n",
                wfs_count(n - N_MOST, "more notice").text);
}

/* Adds a message of a view, which begins with the name of an option, with that as it was typed. */
static void add_named(const struct args *args, const char *text, struct strbuf *out)
{
    const char *option = checkpoint_named_option(text);
    for (char *const *word = args->words; option != NULL && *word != NULL; word++) {
        const size_t n_typed = strcspn(*word, "=");
        if (n_typed > 2 && settings_is_name(option, *word + 2, n_typed - 2)) {
            strbuf_add(out, *word, n_typed);
            text += strlen(option);
            break;
        }
    }
    strbuf_puts(out, text);
}

static enum exit_code print_named(const struct args *args, enum exit_code exit_code,
                                  const char *file, const char *text)
{
    autostrbuf struct strbuf named = {0};
    add_named(args, text, &named);
    return print_error(exit_code, file, "%s", named.has_failed ? text : named.bytes);
}

/* Operands that are swapped are noticed where the source is missing. */
static enum exit_code fail_load(const struct args *args, const char *path, enum exit_code exit_code,
                                const struct checkpoint_failure *failure)
{
    const char *operands = args->verb->operands;
    const char *file = failure->path != NULL ? failure->path : path;
    if (exit_code == EXIT_SOURCE && args->n_operands >= 2 && strncmp(operands, "SOURCE ", 7) == 0 &&
        strcmp(operands, "SOURCE TARGET") != 0 && access(args->operands[0], F_OK) < 0 &&
        access(args->operands[1], F_OK) == 0)
        return print_error(exit_code, file, "%s; SOURCE comes first: weightfs %s %s",
                           failure->err.text, args->name, operands);
    return print_named(args, exit_code, file, failure->err.text);
}

enum exit_code input_load_report(const struct args *args, const char *path,
                                 struct wfs_catalog **out, struct wfs_report **report)
{
    auto_view struct wfs_view *view = NULL;
    struct checkpoint_failure failure = {0};
    struct checkpoint_options options = urls_options();
    auto_report struct wfs_report *own = NULL;
    options.load = args->settings.load;
    memory_limit(&options.load);
    enum exit_code exit_code = make_view(args, &view, &failure.err);
    if (exit_code != EXIT_DONE)
        return print_named(args, exit_code, NULL, failure.err.text);
    if (report == NULL && !wfs_view_is_empty(view))
        report = &own;
    struct progress progress;
    exit_code = checkpoint_connect(path, &args->settings.fetcher, view, &options, &failure.err);
    if (exit_code != EXIT_DONE)
        return print_error(exit_code, path, "%s", failure.err.text);
    progress_start(&progress, "opening", 0);
    progress_follow(&progress, options.load.remote);
    exit_code = checkpoint_load(path, &options, view, out, report, &failure);
    progress_end(&progress);
    checkpoint_disconnect(&options);
    const char *notice = checkpoint_notice(&options, path);
    if (exit_code == EXIT_DONE && notice != NULL)
        print_warning(path, NULL, notice);
    if (exit_code == EXIT_DONE && report != NULL)
        print_warnings(path, *report);
    return exit_code == EXIT_DONE ? EXIT_DONE : fail_load(args, path, exit_code, &failure);
}

enum exit_code input_load(const struct args *args, const char *path, struct wfs_catalog **out)
{
    return input_load_report(args, path, out, NULL);
}

/* ---- arrays of numpy ---- */

/* Shows what is narrower than F32 as F32. */
static enum exit_code widen(const char *path, struct wfs_catalog *catalog)
{
    auto_view struct wfs_view *view = NULL;
    auto_report struct wfs_report *report = NULL;
    const struct wfs_view_loader loader = {0};
    struct wfs_error err = {0};
    int code = wfs_view_new(&view);
    if (code == 0)
        code = wfs_view_widen(view, &err);
    if (code >= 0)
        code = wfs_view_apply(view, catalog, &loader, &report, &err);
    if (code == -ENOMEM)
        return print_memory(path);
    if (code >= 0)
        print_warnings(path, report);
    return code < 0 ? print_error(exit_of_errno(-code), path, "%s", err.text) : EXIT_DONE;
}

enum exit_code input_load_npy(const struct args *args, const char *path, struct wfs_catalog **out)
{
    const char *dtype = args_value(args, "npy");
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (dtype != NULL && strcmp(dtype, "f32") != 0 && strcmp(dtype, "F32") != 0)
        return print_error(EXIT_USAGE, NULL, "--npy must be without a value or f32, not '%s'",
                           wfs_quote(dtype).text);
    enum exit_code exit_code = input_load(args, path, &catalog);
    if (exit_code == EXIT_DONE && dtype != NULL)
        exit_code = widen(path, catalog);
    *out = steal(&catalog);
    return exit_code;
}

/* ---- several sources ---- */

bool input_is_source(const char *operand)
{
    return strcmp(operand, "-") == 0 || strstr(operand, "://") != NULL ||
           access(operand, F_OK) == 0;
}

enum exit_code input_each(const struct args *args, size_t n, const char *list, input_visit *visit)
{
    struct json_out json = {.file = stdout, .spelling = JSON_ASCII};
    const bool is_json = args_has(args, "json");
    enum exit_code exit_code = EXIT_DONE;
    autofree const char **operands = calloc(args->n_operands + 1, sizeof(*operands));
    if (operands == NULL)
        return print_memory(NULL);
    for (size_t i = n; i < args->n_operands; i++)
        operands[1 + i - n] = args->operands[i];
    if (is_json) {
        print_json_start(&json);
        json_out_open_array(&json, list);
    }
    for (size_t i = 0; i < n && !ferror(stdout); i++) {
        struct input_one one = {.args = *args, .json = is_json ? &json : NULL, .is_of_many = n > 1};
        operands[0] = args->operands[i];
        one.args.operands = operands;
        one.args.n_operands = 1 + args->n_operands - n;
        const enum exit_code code = visit(&one);
        exit_code = code > exit_code ? code : exit_code;
    }
    if (is_json) {
        json_out_close(&json);
        json_out_close(&json);
    }
    return exit_code;
}

char *input_unescape(const char *name)
{
    char *copy = strdup(name);
    if (copy != NULL)
        wfs_unescape(copy);
    return copy;
}

static const struct wfs_tensor *find_typed(const struct wfs_catalog *catalog, const char *key)
{
    const struct wfs_tensor *tensor = wfs_catalog_find(catalog, key);
    autofree char *unescaped = tensor == NULL ? input_unescape(key) : NULL;
    return unescaped == NULL ? tensor : wfs_catalog_find(catalog, unescaped);
}

bool input_has(const struct wfs_catalog *catalog, const char *key)
{
    return find_typed(catalog, key) != NULL;
}

enum exit_code input_find(const struct wfs_catalog *catalog, const char *path, const char *key,
                          const struct wfs_tensor **ret)
{
    *ret = find_typed(catalog, key);
    if (*ret != NULL)
        return EXIT_DONE;
    const struct suggestion near = suggestion_of_keys(catalog, key, false);
    return print_error(
        EXIT_NO_MATCH, path, "no tensor has the key '%s'%s", wfs_quote(key).text,
        *near.text == '\0' && strpbrk(key, "*?[") != NULL
            ? "; this verb takes whole keys, and 'weightfs ls SOURCE GLOB' finds them"
            : near.text);
}

enum exit_code input_workload_error(const char *path, const struct wfs_error *err,
                                    const char *advice)
{
    return print_error(EXIT_UNSUPPORTED, path, "%s; %s", err->text, advice);
}

enum exit_code input_workload(const char *path, const struct wfs_work *works, size_t n,
                              bool allows_large, const char *advice, struct wfs_workload **out)
{
    struct wfs_error err = {0};
    if (works == NULL || wfs_workload_new(works, n, out) < 0)
        return print_memory(path);
    return allows_large || wfs_workload_check(*out, &err) == 0
               ? EXIT_DONE
               : input_workload_error(path, &err, advice);
}

enum exit_code input_read_error(const char *path, const struct wfs_tensor *tensor, int code)
{
    struct wfs_error err = {0};
    const int failed = wfs_tensor_fail_read(&err, tensor, code);
    return print_error(exit_of_errno(-failed), path, "%s", err.text);
}

int input_skip(const char *path, const struct wfs_tensor *tensor, int code, enum exit_code *ret)
{
    *ret = input_read_error(path, tensor, code);
    return wfs_tensor_is_damaged(tensor) ? 0 : -ECANCELED;
}

int input_skip_row(const char *const paths[2], struct diff_row *row, int code, enum exit_code *ret)
{
    const bool is_of_a =
        row->failed != NULL ? row->failed == row->a : wfs_tensor_is_damaged(row->a);
    row->failed = is_of_a ? row->a : row->b;
    return code == -ENOMEM ? code : input_skip(paths[is_of_a ? 0 : 1], row->failed, code, ret);
}

uint64_t input_n_elems(const struct wfs_tensor *tensor)
{
    uint64_t n_elems;
    return wfs_shape_count(&tensor->shape, &n_elems) == 0 ? n_elems : 0;
}

const char *input_file_of(const struct wfs_catalog *catalog, const struct wfs_tensor *tensor)
{
    const int i = wfs_catalog_source_of(catalog, tensor);
    return i < 0 ? NULL : wfs_catalog_source_path(catalog, (size_t)i);
}

uint64_t input_source_bytes(const struct wfs_catalog *catalog)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < wfs_catalog_n_sources(catalog); i++)
        n_bytes = input_add(n_bytes, wfs_catalog_source_bytes(catalog, i));
    return n_bytes;
}

uint64_t input_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
