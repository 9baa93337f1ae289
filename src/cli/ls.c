/* SPDX-License-Identifier: MIT */
/*
 * weightfs ls: one line per tensor.
 */
#include "cli/verbs.h"

#include "cli/glob.h"
#include "cli/input.h"
#include "cli/jsonout.h"
#include "cli/key_tree.h"
#include "cli/order.h"
#include "cli/table.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

#include <inttypes.h>
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

struct listing {
    const struct wfs_catalog *catalog;
    struct key_tree tensors; /* the selected ones, in file order */
    bool is_long;
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

/* Fills the listing; *ret_unmatched is the first glob without a match, or NULL. */
static enum exit_code select_tensors(struct listing *listing, const struct args *args,
                                     const char **ret_unmatched)
{
    const size_t n = wfs_catalog_n_tensors(listing->catalog);
    autofree bool *is_wanted = calloc(n + 1, sizeof(*is_wanted));
    listing->tensors.tensors = calloc(n + 1, sizeof(*listing->tensors.tensors));
    if (is_wanted == NULL || listing->tensors.tensors == NULL)
        return print_error(EXIT_UNSUPPORTED, args->operands[0], "out of memory");
    for (size_t j = args->n_operands; j-- > 1;) {
        if (!mark_matches(listing->catalog, args->operands[j], is_wanted))
            *ret_unmatched = args->operands[j];
    }
    for (size_t i = 0; i < n; i++) {
        if (args->n_operands == 1 || is_wanted[i])
            listing->tensors.tensors[listing->tensors.n_tensors++] =
                wfs_catalog_tensor(listing->catalog, i);
    }
    return EXIT_DONE;
}

/* ---- JSON ---- */

static void json_tensor(struct jsonout *out, const struct listing *listing,
                        const struct wfs_tensor *tensor)
{
    jsonout_open_object(out, NULL);
    jsonout_text(out, "key", tensor->key);
    jsonout_text(out, "dtype", wfs_dtype_name(tensor->dtype));
    jsonout_shape(out, "shape", &tensor->shape);
    jsonout_u64(out, "bytes", tensor->n_bytes);
    const char *role = wfs_tensor_attr(tensor, "role");
    if (role != NULL)
        jsonout_text(out, "role", role);
    if (listing->is_long) {
        int fd;
        uint64_t offset;
        jsonout_text(out, "file", input_file_of(listing->catalog, tensor));
        if (wfs_tensor_extent(tensor, &fd, &offset))
            jsonout_u64(out, "offset", offset);
        else
            jsonout_text(out, "offset", NULL);
        jsonout_text(out, "source_key", wfs_tensor_origin(tensor));
        jsonout_text(out, "changes", tensor->changes);
    }
    jsonout_close_object(out);
}

static void json_listing(const struct listing *listing)
{
    struct jsonout out = {.file = stdout};
    jsonout_open_object(&out, NULL);
    jsonout_open_array(&out, "tensors");
    for (size_t i = 0; i < listing->tensors.n_tensors && !ferror(stdout); i++)
        json_tensor(&out, listing, listing->tensors.tensors[i]);
    jsonout_close_array(&out);
    jsonout_close_object(&out);
}

/* ---- text ---- */

static const struct table_column columns[] = {
    {.heading = "key", .n_least = 12, .cut = CUT_MIDDLE},
    {.heading = "dtype"},
    {.heading = "shape", .n_least = 6},
    {.heading = "size", .is_right = true},
    {.heading = "offset", .is_right = true},
    {.heading = "file", .n_least = 12, .cut = CUT_MIDDLE},
    {.heading = "key in the file", .n_least = 12, .cut = CUT_MIDDLE},
    {.heading = "changes", .n_least = 12},
};

enum { N_SHORT = 4, N_LONG = sizeof(columns) / sizeof(columns[0]) };

static void add_place(struct table *table, const struct listing *listing,
                      const struct wfs_tensor *tensor)
{
    int fd;
    uint64_t offset;
    char text[24] = "-";
    if (wfs_tensor_extent(tensor, &fd, &offset))
        snprintf(text, sizeof(text), "%" PRIu64, offset);
    table_text(table, COLOUR_NONE, text);
    const char *file = input_file_of(listing->catalog, tensor);
    table_name(table, COLOUR_NONE, file != NULL ? file : "-");
    table_name(table, COLOUR_NONE, wfs_tensor_origin(tensor));
    table_name(table, COLOUR_CHANGED, tensor->changes != NULL ? tensor->changes : "-");
}

static void add_row(struct table *table, const struct listing *listing,
                    const struct wfs_tensor *tensor)
{
    table_name(table, COLOUR_NONE, tensor->key);
    if (table->form == TABLE_NUL && !listing->is_long)
        return;
    table_dtype(table, (enum wfs_dtype)tensor->dtype);
    table_shape(table, &tensor->shape);
    table_bytes(table, tensor->n_bytes);
    if (listing->is_long)
        add_place(table, listing, tensor);
}

/* The line below the table on a terminal. */
static void print_total(const struct table *table, const struct listing *listing, int n_hidden)
{
    const struct key_tree *tree = &listing->tensors;
    uint64_t n_elems = 0;
    for (size_t i = 0; i < tree->n_tensors; i++)
        n_elems = input_add(n_elems, input_n_elems(tree->tensors[i]));
    const uint64_t n_bytes = key_tree_n_bytes(tree, 0, tree->n_tensors);
    printf("%s, ", wfs_count(tree->n_tensors, "tensor").text);
    if (table->is_human)
        printf("%s elements, %s\n", amount_of_count(n_elems).text, amount_of_bytes(n_bytes).text);
    else
        printf("%s, %s\n", wfs_count(n_elems, "element").text, wfs_count(n_bytes, "byte").text);
    table_print_hidden(n_hidden);
}

static int print_listing(const struct listing *listing, const struct args *args)
{
    auto_table struct table table;
    const bool has_keys_only = args_has(args, "null") && !listing->is_long;
    table_start(&table, columns, has_keys_only ? 1 : listing->is_long ? N_LONG : N_SHORT, args);
    for (size_t i = 0; i < listing->tensors.n_tensors && !ferror(stdout); i++)
        add_row(&table, listing, listing->tensors.tensors[i]);
    const int code = table_print(&table);
    if (table.form == TABLE_SCREEN && code >= 0)
        print_total(&table, listing, code);
    return code;
}

/* ---- the verb ---- */

/* People read keys in order, programs the order of the file. */
static enum exit_code sort(struct listing *listing, const struct args *args)
{
    const bool is_read =
        screen_width(STDOUT_FILENO) > 0 && !args_has(args, "json") && !args_has(args, "null");
    enum order order = is_read ? ORDER_KEY : ORDER_NONE;
    const enum exit_code exit_code = order_parse(args, &order);
    if (exit_code == EXIT_DONE)
        order_sort(listing->tensors.tensors, listing->tensors.n_tensors, order);
    return exit_code;
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
    ret->folds_equals =
        !args_has(args, "no-fold") && (depth != NULL || screen_width(STDOUT_FILENO) > 0);
    return EXIT_DONE;
}

static enum exit_code print_all(struct listing *listing, const struct args *args)
{
    struct key_tree_style style;
    int code = 0;
    if (choose_style(args, &style) != EXIT_DONE)
        return EXIT_USAGE;
    if (args_has(args, "json"))
        json_listing(listing);
    else if (!args_has(args, "tree"))
        code = print_listing(listing, args);
    else
        code = key_tree_draw(&listing->tensors, &style);
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
    if (!args_has(&args, "tree") && (args_has(&args, "depth") || args_has(&args, "no-fold")))
        return print_error(EXIT_USAGE, NULL, "--depth and --no-fold need --tree");
    exit_code = input_load(&args, args.operands[0], &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    struct listing listing = {.catalog = catalog, .is_long = args_has(&args, "long")};
    const char *unmatched = NULL;
    exit_code = select_tensors(&listing, &args, &unmatched);
    if (exit_code == EXIT_DONE)
        exit_code = sort(&listing, &args);
    if (exit_code == EXIT_DONE)
        exit_code = print_all(&listing, &args);
    free(listing.tensors.tensors);
    if (exit_code == EXIT_DONE && unmatched != NULL)
        return print_error(EXIT_NO_MATCH, args.operands[0], "no key matches '%s'",
                           wfs_quote(unmatched).text);
    return exit_code;
}
