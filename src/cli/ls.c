/* SPDX-License-Identifier: MIT */
/*
 * weightfs ls: one line per tensor.
 */
#include "cli/verbs.h"

#include "cli/input.h"
#include "cli/jsonout.h"
#include "cli/key_tree.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static const struct args_option options[] = {
    {"json", NULL, "print one JSON object"},
    {"long", NULL, "also print offset, file, key in the file, changes"},
    {"null", NULL, "-0: print only keys, unescaped, each with a NUL"},
    {"tree", NULL, "draw a tree with counts and sizes"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "ls",
    .operands = "SOURCE [GLOB...]",
    .text = "List the tensors of a checkpoint in file order: key, dtype, shape and bytes,\n"
            "aligned on a terminal and separated by tabs elsewhere. With GLOBs, list only\n"
            "tensors whose whole key matches one of them; '*' matches dots too. Keys are\n"
            "printed as they are, except for characters that a terminal acts on (\\xHH);\n"
            "keys in either form are accepted wherever one is expected.",
    .n_min = 1,
    .n_max = SIZE_MAX,
    .has_source = true,
    .options = options,
};

struct listing {
    const struct wfs_catalog *catalog;
    struct key_tree tensors; /* the selected ones, in file order */
    bool is_long, is_null;
};

/* unescaped is the glob as a key that was printed, or NULL when out of memory. */
static bool is_match(const char *glob, const char *unescaped, const char *key)
{
    return strcmp(glob, key) == 0 || fnmatch(glob, key, 0) == 0 ||
           (unescaped != NULL && strcmp(unescaped, key) == 0);
}

/* Marks the tensors whose key the glob matches. Returns whether there is one. */
static bool mark_matches(const struct wfs_catalog *catalog, const char *glob, bool *is_wanted)
{
    autofree char *unescaped = input_unescape(glob);
    bool has_matched = false;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const bool matches = is_match(glob, unescaped, wfs_catalog_tensor(catalog, i)->key);
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

struct columns {
    bool is_aligned;   /* false: columns are separated by tabs */
    size_t key, shape; /* widths */
};

static struct columns measure(const struct listing *listing)
{
    enum { KEY_MAX = 72, SHAPE_MAX = 24 };
    struct columns columns = {.is_aligned = true};
    for (size_t i = 0; i < listing->tensors.n_tensors; i++) {
        const struct wfs_tensor *tensor = listing->tensors.tensors[i];
        const size_t key = print_width(tensor->key);
        const size_t shape = wfs_shape_format(&tensor->shape, NULL, 0);
        if (key > columns.key && key <= KEY_MAX)
            columns.key = key;
        if (shape > columns.shape && shape <= SHAPE_MAX)
            columns.shape = shape;
    }
    return columns;
}

static void pad(size_t width, size_t to_width)
{
    printf("%*s", width < to_width ? (int)(to_width - width) : 0, "");
}

/* A name as a person reads it, or with its true bytes. */
static void print_name(const struct listing *listing, const char *name)
{
    if (listing->is_null)
        fputs(name, stdout);
    else
        print_escaped(stdout, name);
}

static void print_place(const struct listing *listing, const struct wfs_tensor *tensor, char gap)
{
    int fd;
    uint64_t offset;
    if (wfs_tensor_extent(tensor, &fd, &offset))
        printf("%c%" PRIu64, gap, offset);
    else
        printf("%c-", gap);
    const char *file = input_file_of(listing->catalog, tensor);
    putchar(gap);
    print_name(listing, file != NULL ? file : "-");
    putchar(gap);
    print_name(listing, wfs_tensor_origin(tensor));
    putchar(gap);
    print_name(listing, tensor->changes != NULL ? tensor->changes : "-");
}

static void print_row(const struct listing *listing, const struct columns *columns,
                      const struct wfs_tensor *tensor)
{
    const bool is_aligned = columns->is_aligned;
    const char gap = is_aligned ? ' ' : '\t';
    const char end = listing->is_null ? '\0' : '\n';
    print_name(listing, tensor->key);
    if (listing->is_null && !listing->is_long) {
        putchar(end);
        return;
    }
    if (is_aligned)
        pad(print_width(tensor->key), columns->key);
    printf(is_aligned ? "  %-8s " : "\t%s\t", wfs_dtype_name(tensor->dtype));
    print_shape(stdout, &tensor->shape);
    if (is_aligned)
        pad(wfs_shape_format(&tensor->shape, NULL, 0), columns->shape);
    printf(is_aligned ? " %12" PRIu64 : "\t%" PRIu64, tensor->n_bytes);
    if (listing->is_long)
        print_place(listing, tensor, gap);
    putchar(end);
}

static void print_listing(const struct listing *listing)
{
    struct columns columns = {0};
    if (isatty(STDOUT_FILENO) && !listing->is_null)
        columns = measure(listing);
    for (size_t i = 0; i < listing->tensors.n_tensors && !ferror(stdout); i++)
        print_row(listing, &columns, listing->tensors.tensors[i]);
}

static enum exit_code print_all(struct listing *listing, const struct args *args)
{
    if (args_has(args, "json"))
        json_listing(listing);
    else if (!args_has(args, "tree"))
        print_listing(listing);
    else if (key_tree_draw(stdout, &listing->tensors) < 0)
        return print_error(EXIT_UNSUPPORTED, args->operands[0], "out of memory");
    return EXIT_DONE;
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
    exit_code = input_load(&args, args.operands[0], &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    struct listing listing = {
        .catalog = catalog, .is_long = args_has(&args, "long"), .is_null = args_has(&args, "null")};
    const char *unmatched = NULL;
    exit_code = select_tensors(&listing, &args, &unmatched);
    if (exit_code == EXIT_DONE)
        exit_code = print_all(&listing, &args);
    free(listing.tensors.tensors);
    if (exit_code == EXIT_DONE && unmatched != NULL)
        return print_error(EXIT_NO_MATCH, args.operands[0], "no key matches '%s'",
                           wfs_quote(unmatched).text);
    return exit_code;
}
