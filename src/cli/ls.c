/* SPDX-License-Identifier: MIT */
/*
 * weightfs ls: one line per tensor.
 */
#include "cli/verbs.h"

#include "cli/glob.h"
#include "cli/input.h"
#include "cli/listing.h"
#include "cli/order.h"
#include "program/print.h"
#include "program/screen.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct args_option options[] = {
    {"bytes", NULL, "-b: print exact sizes and counts"},
    {"depth", "N", "with --tree: draw at most N levels"},
    {"human", NULL, "-h: print sizes and counts with a unit"},
    {"json", NULL, "print one JSON object"},
    {"long", NULL, "-l: also offset, file, key in the file, changes"},
    {"no-fold", NULL, "with --tree: draw equal layers one by one"},
    {"null", NULL, "-0: print only keys, unescaped, each with a NUL"},
    {"sort", ORDER_ARGUMENT, "by key, name, size or dtype; none: as in the file"},
    {"tree", NULL, "draw a tree with counts and sizes"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "ls",
    .operands = "SOURCE [GLOB...]",
    .text = "List the tensors of a checkpoint: key, dtype, shape and bytes; on a terminal as\n"
            "a table ordered by key, elsewhere in file order, with exact numbers and tabs.\n"
            "With GLOBs, list only tensors whose whole key matches one of them; '*' matches\n"
            "dots too. Keys are printed as they are, except for characters that a terminal\n"
            "acts on (\\xHH); keys in either form are accepted wherever one is expected.",
    .n_min = 1,
    .n_max = SIZE_MAX,
    .has_source = true,
    .options = options,
};

/* Marks the tensors whose key the glob matches. Returns whether there is one. */
static bool mark_matches(const struct wfs_catalog *catalog, const char *glob, bool *is_wanted)
{
    cleanup(glob_done) struct glob pattern = glob_of(glob);
    bool has_matched = false;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const bool matches = glob_matches(&pattern, wfs_catalog_tensor(catalog, i)->key);
        is_wanted[i] |= matches;
        has_matched |= matches;
    }
    return has_matched;
}

/* Returns the marks of the selected tensors, malloc'ed, or NULL; *ret_unmatched is the first glob
 * without a match, or NULL. */
static bool *select_tensors(const struct wfs_catalog *catalog, const struct args *args,
                            const char **ret_unmatched)
{
    const size_t n = wfs_catalog_n_tensors(catalog);
    bool *is_wanted = calloc(n + 1, sizeof(*is_wanted));
    if (is_wanted == NULL)
        return NULL;
    for (size_t j = args->n_operands; j-- > 1;) {
        if (!mark_matches(catalog, args->operands[j], is_wanted))
            *ret_unmatched = args->operands[j];
    }
    if (args->n_operands == 1)
        memset(is_wanted, true, n);
    return is_wanted;
}

/* Equal layers are folded for people, and where only some levels are drawn. */
static enum exit_code choose_style(const struct args *args, struct key_tree_style *ret)
{
    const char *depth = args_value(args, "depth");
    char *end = NULL;
    *ret = (struct key_tree_style){.n_levels = SIZE_MAX};
    if (depth != NULL)
        ret->n_levels = strtoull(depth, &end, 10);
    if (depth != NULL && (*depth < '0' || *depth > '9' || *end != '\0'))
        return print_error(EXIT_USAGE, NULL, "--depth must be a number, not '%s'",
                           wfs_quote(depth).text);
    ret->is_exact = args_has(args, "bytes");
    ret->folds_equals =
        !args_has(args, "no-fold") && (depth != NULL || screen_width(STDOUT_FILENO) > 0);
    return EXIT_DONE;
}

static enum exit_code print_all(struct listing *listing, const struct args *args)
{
    struct key_tree_style style;
    if (choose_style(args, &style) != EXIT_DONE)
        return EXIT_USAGE;
    const int code = args_has(args, "tree") ? key_tree_draw(&listing->tensors, &style)
                                            : listing_print(listing, args);
    return code < 0 ? print_error(EXIT_UNSUPPORTED, args->operands[0], "out of memory") : EXIT_DONE;
}

int verb_ls(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    if (args_has(&args, "null") && (args_has(&args, "json") || args_has(&args, "tree")))
        return print_error(EXIT_USAGE, NULL, "--null cannot be combined with --json or --tree");
    if (args_has(&args, "tree") &&
        (args_has(&args, "json") || args_has(&args, "long") || args_has(&args, "sort")))
        return print_error(EXIT_USAGE, NULL,
                           "--tree cannot be combined with --json, --long or --sort");
    if (!args_has(&args, "tree") && (args_has(&args, "depth") || args_has(&args, "no-fold")))
        return print_error(EXIT_USAGE, NULL, "--depth and --no-fold need --tree");
    exit_code = input_load(&args, args.operands[0], &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const char *unmatched = NULL;
    autofree bool *is_wanted = select_tensors(catalog, &args, &unmatched);
    auto_listing struct listing listing = {0};
    if (is_wanted == NULL || !listing_init(&listing, catalog, is_wanted, &args))
        return print_error(EXIT_UNSUPPORTED, args.operands[0], "out of memory");
    exit_code = listing_sort(&listing, &args);
    if (exit_code == EXIT_DONE)
        exit_code = print_all(&listing, &args);
    if (exit_code == EXIT_DONE && unmatched != NULL)
        return print_error(
            EXIT_NO_MATCH, args.operands[0], "no key matches '%s'%s", wfs_quote(unmatched).text,
            access(unmatched, F_OK) == 0 ? ", which is a file: only the first operand is a source"
                                         : "");
    return exit_code;
}
