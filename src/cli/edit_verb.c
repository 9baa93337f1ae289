/* SPDX-License-Identifier: MIT */
/*
 * weightfs edit: the edits of a mount without one. The options become a patch, which is applied.
 */
#include "cli/args.h"

#include "cli/conversion.h"
#include "cli/input.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/patch.h>
#include <weightfs/value.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct editing {
    const struct args *args;
    const char *source; /* as typed */
    const struct wfs_catalog *of;
    struct wfs_patch *patch;
    struct wfs_access access;
    bool has_complained;
};

/* ---- mistakes ---- */

static enum exit_code fail_option(const struct args_given *given, const char *format,
                                  const char *what)
{
    char text[WFS_ERROR_TEXT_MAX];
    snprintf(text, sizeof(text), format, what);
    return print_error(EXIT_USAGE, NULL, "--%s '%s': %s", given->name, wfs_quote(given->value).text,
                       text);
}

static enum exit_code fail_edit(const struct editing *editing, const char *key,
                                const struct wfs_error *err)
{
    if (err->code != ENOKEY || key == NULL)
        return print_error(err->code == ENOKEY || err->code == EEXIST ? EXIT_NO_MATCH
                           : err->code == EINVAL                      ? EXIT_USAGE
                                                                      : exit_of_errno(err->code),
                           err->code == EINVAL ? NULL : editing->source, "%s", err->text);
    return print_error(EXIT_NO_MATCH, editing->source, "%s%s", err->text,
                       input_suggest(editing->of, key, true).text);
}

/* ---- the options ---- */

/* Cuts "KEY=TEXT" at its first '='. key is malloc'ed, NULL when out of memory or without a '='. */
static const char *split(const char *value, char **ret_key)
{
    const char *sign = strchr(value, '=');
    *ret_key = sign == NULL || sign == value ? NULL : strndup(value, (size_t)(sign - value));
    if (*ret_key == NULL)
        return NULL;
    wfs_unescape(*ret_key);
    return sign + 1;
}

static enum exit_code remove_matches(struct editing *editing, const struct args_given *given)
{
    cleanup(glob_done) struct glob glob = glob_of(given->value);
    const struct wfs_catalog *of = editing->of;
    struct wfs_error err = {0};
    size_t n = 0;
    int code = 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(of) && code == 0; i++) {
        if (!glob_matches(&glob, wfs_catalog_tensor(of, i)->key))
            continue;
        n++;
        code = wfs_patch_remove(editing->patch, of, i, &err);
    }
    for (size_t i = 0; i < wfs_catalog_n_values(of) && code == 0; i++) {
        if (!glob_matches(&glob, wfs_catalog_value_name(of, i)))
            continue;
        n++;
        code = wfs_patch_remove_value(editing->patch, of, i, &err);
    }
    if (code < 0)
        return fail_edit(editing, NULL, &err);
    if (n > 0)
        return EXIT_DONE;
    return print_error(EXIT_NO_MATCH, editing->source, "no key matches '%s'%s",
                       wfs_quote(given->value).text, input_suggest(of, given->value, true).text);
}

/* "KEY.NAME": the name is what follows the last dot. */
static int set_attribute(struct editing *editing, char *key, const char *value,
                         struct wfs_error *err)
{
    char *dot = strrchr(key, '.');
    if (dot == NULL || dot == key)
        return wfs_fail(err, EINVAL,
                        "--set '%s': expected KEY.dtype, KEY.shape or KEY.param_id before the '='",
                        wfs_quote(key).text);
    *dot = '\0';
    return wfs_patch_set(editing->patch, editing->of, key, dot + 1, value, err);
}

static enum exit_code apply_pair(struct editing *editing, const struct args_given *given)
{
    autofree char *key = NULL;
    struct wfs_error err = {0};
    const char *value = split(given->value, &key);
    const char *name = given->name;
    if (value == NULL)
        return fail_option(given, "expected %s",
                           strcmp(name, "set") == 0 ? "KEY.NAME=TEXT" : "KEY=VALUE");
    if (*value == '\0' && strcmp(name, "set") != 0 && strcmp(name, "set-metadata") != 0)
        return fail_option(given, "nothing follows the '='%s",
                           strcmp(name, "set-value") == 0 ? "" : "; expected a .npy file");
    const int code = strcmp(name, "add") == 0
                         ? wfs_patch_add_npy(editing->patch, editing->of, key, value, &err)
                     : strcmp(name, "replace") == 0
                         ? wfs_patch_replace_npy(editing->patch, editing->of, key, value, &err)
                     : strcmp(name, "set-metadata") == 0
                         ? wfs_patch_set_metadata(editing->patch, editing->of, key, value, &err)
                     : strcmp(name, "set-value") == 0
                         ? wfs_patch_set_value(editing->patch, editing->of, key, value, &err)
                         : set_attribute(editing, key, value, &err);
    return code < 0 ? fail_edit(editing, key, &err) : EXIT_DONE;
}

static enum exit_code remove_metadata(struct editing *editing, const struct args_given *given)
{
    struct wfs_error err = {0};
    const int code = wfs_patch_set_metadata(editing->patch, editing->of, given->value, NULL, &err);
    return code < 0 ? fail_edit(editing, NULL, &err) : EXIT_DONE;
}

static bool is_own(const struct verb *verb, const char *name)
{
    for (const struct args_option *option = verb->options; option->name != NULL; option++) {
        if (strcmp(option->name, name) == 0)
            return true;
    }
    return false;
}

/* Attributes are set last: of tensors that other options add. */
static enum exit_code make_edits(struct editing *editing)
{
    enum exit_code exit_code = EXIT_DONE;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < editing->args->n_given && exit_code == EXIT_DONE; i++) {
            const struct args_given *given = &editing->args->given[i];
            if (!is_own(editing->args->verb, given->name) ||
                (strcmp(given->name, "set") == 0) != (pass == 1))
                continue;
            exit_code = strcmp(given->name, "remove") == 0 ? remove_matches(editing, given)
                        : strcmp(given->name, "remove-metadata") == 0
                            ? remove_metadata(editing, given)
                            : apply_pair(editing, given);
        }
    }
    return exit_code;
}

/* ---- the verb ---- */

/* The first one only: an error is one line. */
static void print_refusal(void *ctx, const char *line)
{
    struct editing *editing = ctx;
    if (!editing->has_complained)
        print_error(EXIT_NO_MATCH, editing->source, "%s", line);
    editing->has_complained = true;
}

static enum exit_code change(void *ctx, const struct wfs_catalog *loaded, struct wfs_catalog **out)
{
    struct editing *editing = ctx;
    struct wfs_error err = {0};
    uint64_t n_refused;
    editing->of = loaded;
    const enum exit_code exit_code = make_edits(editing);
    if (exit_code != EXIT_DONE)
        return exit_code;
    editing->access = wfs_patch_access(editing->patch);
    const struct wfs_patch_options patch_options = {.refuse = print_refusal, .ctx = editing};
    if (wfs_patch_apply(editing->patch, loaded, &patch_options, &n_refused, out, &err) == 0)
        return EXIT_DONE;
    return n_refused > 0 ? EXIT_NO_MATCH
                         : print_error(err.code == EINVAL ? EXIT_NO_MATCH : exit_of_errno(err.code),
                                       editing->source, "%s", err.text);
}

static enum exit_code run_edit(const struct args *args)
{
    auto_patch struct wfs_patch *patch = NULL;
    if (wfs_patch_new(&patch) < 0)
        return print_memory(NULL);
    struct editing editing = {.args = args, .source = args->operands[0], .patch = patch};
    const struct conversion_request request = {.args = args,
                                               .source = args->operands[0],
                                               .target = args->operands[1],
                                               .change = change,
                                               .ctx = &editing,
                                               .access = &editing.access};
    return conversion_run(&request);
}

static const struct args_option edit_options[] = {
    {"add", "KEY=FILE", "add a tensor from a .npy file"},
    {"remove", "GLOB", "remove tensors and values by key"},
    {"remove-metadata", "NAME", "remove a metadata text"},
    {"replace", "KEY=FILE", "replace a tensor by a .npy file"},
    {"set", "KEY.NAME=TEXT", "set dtype, shape or param_id"},
    {"set-metadata", "NAME=TEXT", "set a metadata text"},
    {"set-value", "KEY=JSON", "set a value, or add it"},
    {NULL, NULL, NULL},
};

const struct verb verb_edit = {
    .name = "edit",
    .operands = "SOURCE TARGET",
    .text = "Write SOURCE with edits to TARGET, atomically, as a mount with the same edits\n"
            "would. --rename and the other view options are applied first; all other options\n"
            "refer to the result of that, and their order does not matter. With --set, the\n"
            "bytes of a tensor stay: --set w.dtype=F16, --set w.shape=2,3. TARGET may be\n"
            "SOURCE, with --overwrite.",
    .n_min = 2,
    .n_max = 2,
    .has_source = true,
    .has_output = true,
    .options = edit_options,
    .run = run_edit,
};
