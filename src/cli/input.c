/* SPDX-License-Identifier: MIT */
/*
 * Loads a source for a verb and looks into it.
 */
#include "cli/input.h"

#include "program/checkpoint.h"
#include "program/memory.h"
#include "program/print.h"
#include "cli/progress.h"
#include "cli/suggestion.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/view.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The options of views are among those given; the library knows which. */
static enum exit_code make_view(const struct args *args, struct wfs_view **out,
                                struct wfs_error *err)
{
    char **texts = calloc(args->n_given + 1, sizeof(*texts));
    bool has_memory = texts != NULL;
    for (size_t i = 0; has_memory && i < args->n_given; i++) {
        const struct args_given *given = &args->given[i];
        has_memory = asprintf(&texts[i], "%s%s%s", given->name, given->value != NULL ? "=" : "",
                              given->value != NULL ? given->value : "") >= 0;
        texts[i] = has_memory ? texts[i] : NULL;
    }
    enum exit_code exit_code = EXIT_UNSUPPORTED;
    if (has_memory)
        exit_code = checkpoint_new_view((const char *const *)texts, args->n_given, out, err);
    else
        wfs_fail(err, ENOMEM, "out of memory");
    for (size_t i = 0; texts != NULL && i < args->n_given; i++)
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

enum exit_code input_load_report(const struct args *args, const char *path,
                                 struct wfs_catalog **out, struct wfs_report **report)
{
    auto_view struct wfs_view *view = NULL;
    struct checkpoint_failure failure = {0};
    struct checkpoint_options options = {.load = args_load_options(args)};
    auto_report struct wfs_report *own = NULL;
    memory_limit(args->limits, args->n_limits);
    enum exit_code exit_code = make_view(args, &view, &failure.err);
    if (exit_code != EXIT_DONE)
        return print_error(exit_code, NULL, "%s", failure.err.text);
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
    if (exit_code == EXIT_DONE && report != NULL)
        print_warnings(path, *report);
    struct args_hint hint = {""};
    return exit_code == EXIT_DONE
               ? EXIT_DONE
               : print_error(exit_code, failure.path != NULL ? failure.path : path, "%s%s",
                             failure.err.text,
                             exit_code == EXIT_SOURCE ? args_order(args, &hint) : "");
}

enum exit_code input_load(const struct args *args, const char *path, struct wfs_catalog **out)
{
    return input_load_report(args, path, out, NULL);
}

char *input_unescape(const char *name)
{
    char *copy = strdup(name);
    if (copy != NULL)
        wfs_unescape(copy);
    return copy;
}

enum exit_code input_find(const struct wfs_catalog *catalog, const char *path, const char *key,
                          const struct wfs_tensor **ret)
{
    *ret = wfs_catalog_find(catalog, key);
    if (*ret == NULL) {
        autofree char *unescaped = input_unescape(key);
        *ret = unescaped == NULL ? NULL : wfs_catalog_find(catalog, unescaped);
    }
    if (*ret != NULL)
        return EXIT_DONE;
    struct suggestion near = {0};
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++)
        suggestion_offer(&near, key, wfs_catalog_tensor(catalog, i)->key);
    const struct suggestion_text text = suggestion_text(&near);
    return print_error(
        EXIT_NO_MATCH, path, "no tensor has the key '%s'%s", wfs_quote(key).text,
        *text.text == '\0' && strpbrk(key, "*?[") != NULL
            ? "; this verb takes whole keys, and 'weightfs ls SOURCE GLOB' finds them"
            : text.text);
}

enum exit_code input_format(const struct args *args, const struct wfs_format **ret)
{
    const char *name = args_value(args, "format");
    struct wfs_error err = {0};
    *ret = NULL;
    if (name == NULL || settings_parse_format(name, ret, &err) == 0)
        return EXIT_DONE;
    return print_error(EXIT_USAGE, NULL, "--format %s", err.text);
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
        return print_error(EXIT_UNSUPPORTED, path, "out of memory");
    return allows_large || wfs_workload_check(*out, &err) == 0
               ? EXIT_DONE
               : input_workload_error(path, &err, advice);
}

enum exit_code input_read_error(const char *path, const struct wfs_tensor *tensor, int code)
{
    const struct wfs_quoted key = wfs_quote(tensor->key);
    const char *trouble = wfs_tensor_trouble(tensor);
    if (trouble != NULL)
        return print_error(EXIT_DAMAGED, path, "tensor '%s': %s", key.text, trouble);
    if (code == -EBADMSG)
        return print_error(EXIT_DAMAGED, path, "tensor '%s': its compressed data is damaged",
                           key.text);
    if (code == -EIO)
        return print_error(
            EXIT_DAMAGED, path,
            "tensor '%s': cannot be read, or the file has changed since it was opened", key.text);
    return print_error(exit_of_errno(-code), path, "tensor '%s': %s", key.text, strerror(-code));
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

uint64_t input_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
