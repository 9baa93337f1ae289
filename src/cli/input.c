/* SPDX-License-Identifier: MIT */
/*
 * Loads a source for a verb and looks into it.
 */
#include "cli/input.h"

#include "program/print.h"
#include "cli/suggest.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/view.h>

#include <errno.h>
#include <string.h>

static enum exit_code load(const struct args *args, const char *path, struct wfs_catalog **out)
{
    struct wfs_error err = {0};
    const struct wfs_load_options options = args_load_options(args);
    const char *real_path = strcmp(path, "-") == 0 ? "/dev/fd/0" : path;
    if (wfs_load(real_path, &options, out, &err) < 0)
        return print_error(exit_of_errno(err.code), path, "%s", err.text);
    return EXIT_DONE;
}

/* Of an option, or of what it did: a refusal by the rules has its own exit code. */
static enum exit_code view_error(const char *path, const struct wfs_error *err)
{
    const enum exit_code exit_code =
        err->code == EINVAL || err->code == E2BIG ? EXIT_NO_MATCH : exit_of_errno(err->code);
    return print_error(exit_code, path, "%s", err->text);
}

static enum exit_code make_view(const struct args *args, const char *path, struct wfs_view **out)
{
    struct wfs_error err = {0};
    auto_view struct wfs_view *view = NULL;
    if (wfs_view_new(&view) < 0)
        return print_error(EXIT_UNSUPPORTED, path, "out of memory");
    for (size_t i = 0; i < args->n_given; i++) {
        const struct args_given *given = &args->given[i];
        autofree char *text = NULL;
        const int n = asprintf(&text, "%s%s%s", given->name, given->value != NULL ? "=" : "",
                               given->value != NULL ? given->value : "");
        if (n < 0)
            return print_error(EXIT_UNSUPPORTED, path, "out of memory");
        if (wfs_view_add(view, text, &err) < 0)
            return view_error(path, &err);
    }
    *out = view;
    view = NULL;
    return EXIT_DONE;
}

static enum exit_code lay_overlays(const struct args *args, const struct wfs_view *view,
                                   const char *path, struct wfs_catalog *catalog)
{
    const char *over_path;
    for (size_t i = 0; (over_path = wfs_view_overlay(view, i)) != NULL; i++) {
        struct wfs_error err = {0};
        struct wfs_catalog *over = NULL;
        const enum exit_code exit_code = load(args, over_path, &over);
        if (exit_code != EXIT_DONE)
            return exit_code;
        if (wfs_view_lay(view, i, catalog, over, &err) < 0)
            return view_error(path, &err);
    }
    return EXIT_DONE;
}

static enum exit_code apply_view(const struct args *args, const struct wfs_view *view,
                                 const char *path, struct wfs_catalog *catalog,
                                 struct wfs_report **report)
{
    struct wfs_error err = {0};
    auto_catalog struct wfs_catalog *like = NULL;
    const char *like_path = wfs_view_like(view);
    enum exit_code exit_code = lay_overlays(args, view, path, catalog);
    if (exit_code == EXIT_DONE && like_path != NULL)
        exit_code = load(args, like_path, &like);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (wfs_view_apply(view, catalog, like, report, &err) < 0)
        return view_error(path, &err);
    return EXIT_DONE;
}

enum exit_code input_load_report(const struct args *args, const char *path,
                                 struct wfs_catalog **out, struct wfs_report **report)
{
    auto_view struct wfs_view *view = NULL;
    enum exit_code exit_code = make_view(args, path, &view);
    if (exit_code == EXIT_DONE)
        exit_code = load(args, path, out);
    if (exit_code != EXIT_DONE || (report == NULL && wfs_view_is_empty(view)))
        return exit_code;
    struct wfs_report *own = NULL;
    exit_code = apply_view(args, view, path, *out, report != NULL ? report : &own);
    wfs_report_free(own);
    return exit_code;
}

enum exit_code input_load(const struct args *args, const char *path, struct wfs_catalog **out)
{
    return input_load_report(args, path, out, NULL);
}

enum exit_code input_find(const struct wfs_catalog *catalog, const char *path, const char *key,
                          const struct wfs_tensor **ret)
{
    *ret = wfs_catalog_find(catalog, key);
    if (*ret != NULL)
        return EXIT_DONE;
    const char *near[3];
    const size_t n_near = suggest_keys(catalog, key, near);
    const char *const words[] = {"; did you mean", ",", " or"};
    char text[3 * WFS_QUOTE_MAX + 64] = "";
    size_t n_text = 0;
    for (size_t i = 0; i < n_near; i++) {
        const size_t word = i == 0 ? 0 : i + 1 == n_near ? 2 : 1;
        n_text += (size_t)snprintf(text + n_text, sizeof(text) - n_text, "%s '%s'", words[word],
                                   wfs_quote(near[i]).text);
    }
    return print_error(EXIT_NO_MATCH, path, "no tensor has the key '%s'%s%s", wfs_quote(key).text,
                       text, n_near > 0 ? "?" : "");
}

enum exit_code input_format(const struct args *args, const struct wfs_format **ret)
{
    const char *name = args_value(args, "format");
    *ret = name != NULL ? wfs_format_by_name(name) : NULL;
    if (name == NULL || *ret != NULL)
        return EXIT_DONE;
    return print_error(EXIT_USAGE, NULL, "no format is called '%s'", wfs_quote(name).text);
}

enum exit_code input_read_error(const char *path, const struct wfs_tensor *tensor, int code)
{
    const struct wfs_quoted key = wfs_quote(tensor->key);
    if (tensor->trouble != NULL)
        return print_error(EXIT_DAMAGED, path, "tensor '%s': %s", key.text, tensor->trouble);
    if (code == -EBADMSG)
        return print_error(EXIT_DAMAGED, path, "tensor '%s': its compressed data is damaged",
                           key.text);
    if (code == -EIO)
        return print_error(EXIT_DAMAGED, path,
                           "tensor '%s': cannot be read, or the file has changed meanwhile",
                           key.text);
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
