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
    {"tree", NULL, "draw a tree with counts and sizes"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "ls",
    .operands = "SOURCE [GLOB...]",
    .text = "List the tensors of a checkpoint in file order: key, dtype, shape and bytes,\n"
            "aligned on a terminal and separated by tabs elsewhere. With GLOBs, list only\n"
            "tensors whose whole key matches one of them; '*' matches dots too.",
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

static bool is_match(const char *glob, const char *key)
{
    return strcmp(glob, key) == 0 || fnmatch(glob, key, 0) == 0;
}

/* Fills the listing; *ret_unmatched is the first glob without a match, or NULL. */
static enum exit_code select_tensors(struct listing *listing, const struct args *args,
                                     const char **ret_unmatched)
{
    const size_t n = wfs_catalog_n_tensors(listing->catalog);
    const size_t n_globs = args->n_operands - 1;
    autofree bool *has_matched = calloc(n_globs + 1, sizeof(*has_matched));
    listing->tensors.tensors = calloc(n + 1, sizeof(*listing->tensors.tensors));
    if (has_matched == NULL || listing->tensors.tensors == NULL)
        return print_error(EXIT_UNSUPPORTED, args->operands[0], "out of memory");
    for (size_t i = 0; i < n; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(listing->catalog, i);
        bool is_wanted = n_globs == 0;
        for (size_t j = 0; j < n_globs; j++) {
            if (is_match(args->operands[j + 1], tensor->key))
                is_wanted = has_matched[j] = true;
        }
        if (is_wanted)
            listing->tensors.tensors[listing->tensors.n_tensors++] = tensor;
    }
    for (size_t j = n_globs; j > 0; j--) {
        if (!has_matched[j - 1])
            *ret_unmatched = args->operands[j];
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
    print_escaped(stdout, file != NULL ? file : "-");
    putchar(gap);
    print_escaped(stdout, wfs_tensor_origin(tensor));
    putchar(gap);
    print_escaped(stdout, tensor->changes != NULL ? tensor->changes : "-");
}

static void print_row(const struct listing *listing, const struct columns *columns,
                      const struct wfs_tensor *tensor)
{
    const bool is_aligned = columns->is_aligned;
    const char gap = is_aligned ? ' ' : '\t';
    print_escaped(stdout, tensor->key);
    if (is_aligned)
        pad(print_width(tensor->key), columns->key);
    printf(is_aligned ? "  %-8s " : "\t%s\t", wfs_dtype_name(tensor->dtype));
    print_shape(stdout, &tensor->shape);
    if (is_aligned)
        pad(wfs_shape_format(&tensor->shape, NULL, 0), columns->shape);
    printf(is_aligned ? " %12" PRIu64 : "\t%" PRIu64, tensor->n_bytes);
    if (listing->is_long)
        print_place(listing, tensor, gap);
    putchar('\n');
}

static void print_listing(const struct listing *listing)
{
    struct columns columns = {0};
    if (isatty(STDOUT_FILENO))
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
    exit_code = input_load(&args, args.operands[0], &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    struct listing listing = {.catalog = catalog, .is_long = args_has(&args, "long")};
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
