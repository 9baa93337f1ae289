/* SPDX-License-Identifier: MIT */
/*
 * weightfs find: the tensors that fit conditions, names and globs.
 */
#include "cli/verbs.h"

#include "cli/glob.h"
#include "cli/input.h"
#include "cli/listing.h"
#include "cli/order.h"
#include "cli/suggestion.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/view.h>

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const struct args_option options[] = {
    {"bytes", NULL, "-b: print exact sizes and counts"},
    {"human", NULL, "-h: print sizes and counts with a unit"},
    {"json", NULL, "print one JSON object"},
    {"long", NULL, "-l: also offset, file, key in the file, changes"},
    {"null", NULL, "-0: print only keys, unescaped, each with a NUL"},
    {"sort", ORDER_ARGUMENT, "by key, name, size or dtype; none: as in the file"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "find",
    .operands = "SOURCE WHAT...",
    .text = "List the tensors of a checkpoint that fit every WHAT, as ls does. WHAT is\n"
            "  NAME       a part of the key, such as query\n"
            "  GLOB       with * ? or [, for the whole key: 'encoder.*.bias'\n"
            "  CONDITION  with an operator, in the language of --where:\n"
            "             'dtype==F32 && bytes>1M', 'key =~ \"[qk]_proj\" || rank==1'\n"
            "The fields are key, leaf, dtype, shape, class, rank and bytes; the operators are\n"
            "== != =~ !~ < <= > >= && || ! and parentheses. 1M is 2^20 bytes, 1MB 10^6.\n"
            "The exit code is 1 if no tensor fits.",
    .n_min = 2,
    .n_max = SIZE_MAX,
    .has_source = true,
    .options = options,
};

/* A key with such characters is found by a condition: `key == "a<b"`. */
static bool is_condition(const char *what)
{
    return strpbrk(what, "<>") != NULL || strstr(what, "==") != NULL ||
           strstr(what, "!=") != NULL || strstr(what, "=~") != NULL || strstr(what, "!~") != NULL;
}

static enum exit_code select_fitting(const struct wfs_catalog *catalog, const char *path,
                                     const char *what, bool *marks)
{
    struct wfs_condition *condition = NULL;
    struct wfs_error err = {0};
    int code = wfs_condition_new(what, &condition, &err);
    if (code == 0)
        code = wfs_condition_select(condition, catalog, marks, &err);
    wfs_condition_free(condition);
    return code == 0         ? EXIT_DONE
           : code == -EINVAL ? print_error(EXIT_USAGE, NULL, "%s", err.text)
                             : print_error(exit_of_errno(-code), path, "%s", err.text);
}

/* A name may be anywhere in the key, a glob is for all of it. */
static void select_named(const struct wfs_catalog *catalog, const char *what, bool *marks)
{
    cleanup(glob_done) struct glob glob = glob_of(what);
    const bool is_glob = strpbrk(what, "*?[") != NULL;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const char *key = wfs_catalog_tensor(catalog, i)->key;
        marks[i] = marks[i] && (glob_matches(&glob, key) || (!is_glob && glob_is_in(&glob, key)));
    }
}

static enum exit_code select_all(const struct wfs_catalog *catalog, const struct args *args,
                                 bool *marks)
{
    enum exit_code exit_code = EXIT_DONE;
    memset(marks, true, wfs_catalog_n_tensors(catalog));
    for (size_t i = 1; i < args->n_operands && exit_code == EXIT_DONE; i++) {
        if (is_condition(args->operands[i]))
            exit_code = select_fitting(catalog, args->operands[0], args->operands[i], marks);
        else
            select_named(catalog, args->operands[i], marks);
    }
    return exit_code;
}

/* Nothing was found: like grep, exit code 1. */
static enum exit_code report_nothing(const struct wfs_catalog *catalog, const struct args *args)
{
    const char *what = args->operands[1];
    struct suggestion near = {0};
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog) && !is_condition(what); i++)
        suggestion_offer(&near, what, wfs_catalog_tensor(catalog, i)->key);
    if (args->n_operands > 2)
        return print_error(EXIT_FOUND, args->operands[0], "no tensor fits all of %s",
                           wfs_count(args->n_operands - 1, "condition").text);
    return print_error(EXIT_FOUND, args->operands[0], "no tensor fits '%s'%s", wfs_quote(what).text,
                       !is_condition(what) && strchr(what, '=') != NULL
                           ? ", as a part of the key; conditions compare with =="
                           : suggestion_text(&near).text);
}

int verb_find(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    if (args_has(&args, "null") && args_has(&args, "json"))
        return print_error(EXIT_USAGE, NULL, "--null cannot be combined with --json");
    exit_code = input_load(&args, args.operands[0], &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    autofree bool *marks = calloc(wfs_catalog_n_tensors(catalog) + 1, sizeof(*marks));
    auto_listing struct listing listing = {0};
    if (marks != NULL)
        exit_code = select_all(catalog, &args, marks);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (marks == NULL || !listing_init(&listing, catalog, marks, &args))
        return print_error(EXIT_UNSUPPORTED, args.operands[0], "out of memory");
    exit_code = listing_sort(&listing, &args);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (listing.tensors.n_tensors == 0 && !args_has(&args, "json"))
        return report_nothing(catalog, &args);
    if (listing_print(&listing, &args) < 0)
        return print_error(EXIT_UNSUPPORTED, args.operands[0], "out of memory");
    return listing.tensors.n_tensors > 0 ? EXIT_DONE : EXIT_FOUND;
}
