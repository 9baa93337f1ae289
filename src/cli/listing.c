/* SPDX-License-Identifier: MIT */
/*
 * weightfs ls and find: tensors of a checkpoint, a row for each, as a table, as JSON or as a tree.
 * People read keys in order and need a total; programs get the order of the file and exact numbers.
 */
#include "cli/args.h"
#include "cli/input.h"
#include "cli/table.h"
#include "program/key_tree.h"
#include "program/print.h"
#include "program/suggestion.h"
#include "program/terminal.h"

#include <weightfs/array.h>
#include <weightfs/catalog.h>
#include <weightfs/cleanup.h>
#include <weightfs/json_out.h>
#include <weightfs/tensor.h>
#include <weightfs/view.h>

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- orders: the values of --sort. Tensors that an order leaves equal are ordered by key. ---- */

static int by_key(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return order_of_keys(a->key, b->key);
}

static const char *last_component(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot != NULL ? dot + 1 : key;
}

static int by_name(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return order_of_keys(last_component(a->key), last_component(b->key));
}

/* The largest first. */
static int by_size(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return (a->n_bytes < b->n_bytes) - (a->n_bytes > b->n_bytes);
}

static int by_dtype(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return strcmp(wfs_dtype_name((enum wfs_dtype)a->dtype),
                  wfs_dtype_name((enum wfs_dtype)b->dtype));
}

typedef int (*order)(const struct wfs_tensor *a, const struct wfs_tensor *b);

static const struct {
    const char *name;
    order compare; /* NULL: as in the file */
} orders[] = {
    {"none", NULL}, {"key", by_key}, {"name", by_name}, {"size", by_size}, {"dtype", by_dtype}};

static int compare(const void *a, const void *b, void *ctx)
{
    const struct wfs_tensor *const *x = a, *const *y = b;
    const order *chosen = ctx;
    const int first = (*chosen)(*x, *y);
    return first != 0 ? first : by_key(*x, *y);
}

/* ---- the listing ---- */

struct listing {
    const struct wfs_catalog *catalog;
    struct key_tree tensors; /* the selected ones, in file order */
    bool is_long;            /* also where the bytes are */
};

#define auto_listing cleanup(listing_done)

/*
 * Prepares a listing of the tensors of the catalog that are marked; false when out of memory. The
 * array of tensors belongs to it.
 */
static bool listing_init(struct listing *listing, const struct wfs_catalog *catalog,
                         const bool *marks, const struct args *args)
{
    const size_t n = wfs_catalog_n_tensors(catalog);
    *listing = (struct listing){.catalog = catalog, .is_long = args_has(args, "long")};
    listing->tensors.tensors = calloc(n + 1, sizeof(*listing->tensors.tensors));
    for (size_t i = 0; listing->tensors.tensors != NULL && i < n; i++) {
        if (marks[i])
            listing->tensors.tensors[listing->tensors.n_tensors++] = wfs_catalog_tensor(catalog, i);
    }
    return listing->tensors.tensors != NULL;
}

static void listing_done(struct listing *listing)
{
    free(listing->tensors.tensors);
    *listing = (struct listing){0};
}

/* Puts the tensors in order: that of --sort, else of keys on a terminal and of the file elsewhere.
 * Unless EXIT_DONE, a line was printed. */
static enum exit_code listing_sort(struct listing *listing, const struct args *args)
{
    enum { N_ORDERS = sizeof(orders) / sizeof(orders[0]) };
    const bool is_read = screen_width(STDOUT_FILENO) > 0 && !args_has(args, "json") &&
                         !args_has(args, "null") && !args_has(args, "csv");
    const char *name = args_value(args, "sort");
    order chosen = is_read ? by_key : NULL;
    size_t i = 0;
    while (name != NULL && i < N_ORDERS && strcmp(name, orders[i].name) != 0)
        i++;
    if (i == N_ORDERS)
        return print_error(EXIT_USAGE, NULL,
                           "--sort must be key, name, size, dtype or none, not '%s'",
                           wfs_quote(name).text);
    if (name != NULL)
        chosen = orders[i].compare;
    if (chosen != NULL)
        qsort_r(listing->tensors.tensors, listing->tensors.n_tensors,
                sizeof(*listing->tensors.tensors), compare, &chosen);
    return EXIT_DONE;
}

/* ---- rows ---- */

static const struct table_column columns[] = {
    {.heading = "key", .member = "key", .is_key = true},
    {.heading = "dtype", .member = "dtype"},
    {.heading = "shape", .member = "shape"},
    {.heading = "size", .member = "bytes", .is_right = true, .stays = true},
    {.member = "role", .is_optional = true},
    {.member = "source", .is_optional = true},
    {.member = "file"},
    {.heading = "offset", .member = "offset", .is_right = true},
    {.heading = "file", .cuts_middle = true, .n_least = 12},
    {.heading = "key in the file", .member = "source_key", .cuts_middle = true, .n_least = 12},
    {.heading = "changes", .member = "changes", .n_least = 12},
};

enum { N_KEY = 1, N_SHORT = 4, N_ROLE = 6, N_LONG = sizeof(columns) / sizeof(columns[0]) };

/* source: of several; NULL: there is one only. */
static void add_row(struct table *table, const struct listing *listing,
                    const struct wfs_tensor *tensor, const char *source)
{
    int fd;
    uint64_t offset;
    table_name(table, COLOUR_NONE, tensor->key);
    if (table->n_columns == N_KEY)
        return;
    table_text(table, COLOUR_DTYPE, wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    table_shape(table, &tensor->shape);
    table_bytes(table, tensor->n_bytes);
    if (table->n_columns >= N_ROLE)
        table_text(table, COLOUR_NONE, wfs_tensor_attr(tensor, "role"));
    if (table->n_columns >= N_ROLE)
        table_name(table, COLOUR_NONE, source);
    if (!listing->is_long)
        return;
    const char *file = input_file_of(listing->catalog, tensor);
    table_name(table, COLOUR_NONE, file);
    table_exact(table, wfs_tensor_extent(tensor, &fd, &offset) ? &offset : NULL);
    table_name(table, COLOUR_NONE, file);
    const char *origin = wfs_tensor_origin(tensor);
    const bool is_said = table->form == TABLE_SCREEN && strcmp(origin, tensor->key) == 0;
    table_name(table, COLOUR_NONE, is_said ? NULL : origin);
    table_name(table, COLOUR_CHANGED, tensor->changes);
}

/* The lines below the table on a terminal. */
static void print_total(const struct table *table, const struct listing *listing)
{
    const struct key_tree *tree = &listing->tensors;
    const uint64_t n_elems = key_tree_n_elems(tree, 0, tree->n_tensors);
    const uint64_t n_bytes = key_tree_n_bytes(tree, 0, tree->n_tensors);
    printf("%s, ", wfs_count(tree->n_tensors, "tensor").text);
    if (table->is_human)
        printf("%s element%s, %s\n", amount_of_count(n_elems).text, n_elems == 1 ? "" : "s",
               amount_of_bytes(n_bytes).text);
    else
        printf("%s, %s\n", wfs_count(n_elems, "element").text, wfs_count(n_bytes, "byte").text);
    table_print_dropped(table);
}

/* Prints a table, or adds to the open array of JSON. source: of several, or NULL. -ENOMEM. */
static int listing_print(const struct listing *listing, const struct args *args,
                         struct json_out *json, const char *source)
{
    auto_table struct table table;
    if (json != NULL) {
        table_start_json(&table, columns, listing->is_long ? N_LONG : N_ROLE, json);
    } else {
        const size_t n_short = args_has(args, "null") ? N_KEY : N_SHORT;
        table_start(&table, columns, listing->is_long ? N_LONG : n_short, args);
    }
    for (size_t i = 0; i < listing->tensors.n_tensors && !ferror(stdout); i++)
        add_row(&table, listing, listing->tensors.tensors[i], source);
    const int code = table_print(&table);
    if (table.form == TABLE_SCREEN && code >= 0)
        print_total(&table, listing);
    return code;
}

/*
 * ---- a tree ----
 * It is drawn without being built: a frame per open directory. A directory that holds only one
 * other thing shares its line with it, so the indents together are never longer than the keys.
 */

struct style {
    bool folds_equals;
    bool is_exact;   /* numbers have all their digits, and no unit */
    size_t n_levels; /* at most that many are drawn */
};

struct frame {
    size_t end;      /* of the tensors in it */
    size_t next;     /* what is drawn after it */
    size_t n_prefix; /* bytes of the key that lead to it */
    bool is_last;    /* nothing follows it in its parent */
};

struct drawing {
    const struct key_tree *tree;
    const struct style *style;
    size_t n_screen; /* columns of the terminal, 0: none */
    struct frame *frames;
    size_t n_frames, n_room;
};

static int push(struct drawing *drawing, struct frame frame)
{
    if (array_reserve(&drawing->frames, sizeof(*drawing->frames), drawing->n_frames, 1,
                      &drawing->n_room) < 0)
        return -ENOMEM;
    drawing->frames[drawing->n_frames++] = frame;
    return 0;
}

static void add_indent(const struct drawing *drawing, bool is_last, struct strbuf *line)
{
    for (size_t i = 1; i < drawing->n_frames; i++)
        strbuf_puts(line, drawing->frames[i].is_last ? "    " : "|   ");
    strbuf_puts(line, is_last ? "`-- " : "|-- ");
}

static void add_bytes(const struct style *style, uint64_t n_bytes, struct strbuf *line)
{
    strbuf_puts(line,
                style->is_exact ? wfs_count(n_bytes, "byte").text : amount_of_bytes(n_bytes).text);
}

static void add_tensor(const struct style *style, const struct wfs_tensor *tensor,
                       uint64_t n_copies, struct strbuf *line)
{
    strbuf_printf(line, "  %s%s%s ", screen_on(STDOUT_FILENO, COLOUR_DTYPE),
                  wfs_dtype_name((enum wfs_dtype)tensor->dtype),
                  screen_off(STDOUT_FILENO, COLOUR_DTYPE));
    print_add_shape(line, &tensor->shape);
    strbuf_puts(line, "  ");
    if (n_copies > 1)
        strbuf_printf(line, "%" PRIu64 " x ", n_copies);
    add_bytes(style, tensor->n_bytes, line);
}

static void add_totals(const struct drawing *drawing, const struct key_run *run,
                       struct strbuf *line)
{
    if (run->n_copies > 1) {
        const uint64_t n_elems = key_tree_n_elems(drawing->tree, run->start, run->end_one);
        strbuf_printf(line, "  %" PRIu64 " x ", run->n_copies);
        if (drawing->style->is_exact)
            strbuf_printf(line, "%" PRIu64, n_elems);
        else
            strbuf_puts(line, amount_of_count(n_elems).text);
    }
    strbuf_printf(line, "  (%s, ", wfs_count(run->end - run->start, "tensor").text);
    add_bytes(drawing->style, key_tree_n_bytes(drawing->tree, run->start, run->end), line);
    strbuf_puts(line, ")");
}

static int draw_line(const struct drawing *drawing, const struct strbuf *line)
{
    autostrbuf struct strbuf cut = {0};
    if (line->has_failed)
        return -ENOMEM;
    if (drawing->n_screen == 0) {
        puts(line->bytes);
        return 0;
    }
    screen_cut(&cut, line->bytes, drawing->n_screen, CUT_END);
    strbuf_puts(&cut, screen_off(STDOUT_FILENO, COLOUR_DTYPE));
    if (!cut.has_failed)
        puts(cut.bytes);
    return cut.has_failed ? -ENOMEM : 0;
}

/* Prints one line: the tensors or directories at *i. Moves *i to what is printed next. */
static int print_next(struct drawing *drawing, size_t *i)
{
    autostrbuf struct strbuf line = {0};
    const struct frame *frame = &drawing->frames[drawing->n_frames - 1];
    const struct key_run run =
        key_tree_run(drawing->tree, *i, frame->end, frame->n_prefix, drawing->style->folds_equals);
    const bool is_last = run.end == frame->end;
    add_indent(drawing, is_last, &line);
    key_tree_name(drawing->tree, &run, frame->n_prefix, &line);
    const bool is_tensor = run.end_one - run.start == 1;
    if (is_tensor)
        add_tensor(drawing->style, drawing->tree->tensors[run.start], run.n_copies, &line);
    else
        add_totals(drawing, &run, &line);
    const int code = draw_line(drawing, &line);
    if (code == 0 && !is_tensor && drawing->n_frames < drawing->style->n_levels)
        return push(drawing, (struct frame){run.end_one, run.end, run.n_prefix, is_last});
    *i = run.end;
    return code;
}

static int print_root(const struct drawing *drawing)
{
    autostrbuf struct strbuf line = {0};
    const struct key_run all = {.end = drawing->tree->n_tensors, .n_copies = 1};
    strbuf_puts(&line, ".");
    add_totals(drawing, &all, &line);
    return draw_line(drawing, &line);
}

/* Sorts the tensors and draws them, with counts and bytes; on a terminal lines are cut to its
 * width. -ENOMEM. */
static int draw_tree(struct key_tree *tree, const struct style *style)
{
    struct drawing drawing = {
        .tree = tree, .style = style, .n_screen = screen_width(STDOUT_FILENO)};
    const size_t n = tree->n_tensors;
    key_tree_sort(tree);
    int result = print_root(&drawing);
    if (result == 0 && style->n_levels > 0)
        result = push(&drawing, (struct frame){.end = n, .next = n, .is_last = true});
    for (size_t i = 0; result == 0 && drawing.n_frames > 0 && !ferror(stdout);) {
        const struct frame *frame = &drawing.frames[drawing.n_frames - 1];
        if (i < frame->end) {
            result = print_next(&drawing, &i);
        } else {
            i = frame->next;
            drawing.n_frames--;
        }
    }
    free(drawing.frames);
    return result;
}

/* ---- ls ---- */

/* Equal layers are folded for people, and where only some levels are drawn. */
static enum exit_code choose_style(const struct args *args, struct style *ret)
{
    const char *depth = args_value(args, "depth");
    char *end = NULL;
    *ret = (struct style){.n_levels = SIZE_MAX};
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

static enum exit_code print_all(struct listing *listing, const struct input_one *one)
{
    struct style style;
    const char *path = one->args.operands[0];
    if (choose_style(&one->args, &style) != EXIT_DONE)
        return EXIT_USAGE;
    if (one->is_of_many && one->json == NULL && !args_has(&one->args, "null")) {
        print_escaped(stdout, path);
        puts(":");
    }
    const int code = args_has(&one->args, "tree") ? draw_tree(&listing->tensors, &style)
                                                  : listing_print(listing, &one->args, one->json,
                                                                  one->is_of_many ? path : NULL);
    return code < 0 ? print_memory(path) : EXIT_DONE;
}

static enum exit_code list_one(const struct input_one *one)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    const struct args *args = &one->args;
    enum exit_code exit_code = input_load(args, args->operands[0], &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const char *unmatched = NULL;
    autofree bool *is_wanted = input_select(catalog, args, 1, &unmatched);
    auto_listing struct listing listing = {0};
    if (is_wanted == NULL || !listing_init(&listing, catalog, is_wanted, args))
        return print_memory(args->operands[0]);
    exit_code = listing_sort(&listing, args);
    if (exit_code == EXIT_DONE)
        exit_code = print_all(&listing, one);
    return exit_code == EXIT_DONE && unmatched != NULL
               ? input_unmatched(catalog, args->operands[0], unmatched)
               : exit_code;
}

/* Puts the operands that are further sources before those that are globs, in both cases in their
 * order: what exists is a source unless it is a name in the first one. Returns how many sources
 * there are; 0: a line was printed, and *ret_code is set. */
static size_t sort_operands(const struct args *args, const char **ret_operands,
                            enum exit_code *ret_code)
{
    auto_catalog struct wfs_catalog *first = NULL;
    size_t n = 0;
    for (unsigned pass = 0; pass < 2; pass++) {
        const size_t n_sources = n;
        for (size_t i = 0; i < args->n_operands; i++) {
            const char *operand = args->operands[i];
            bool is_source = i == 0;
            if (i > 0 && input_is_source(operand)) {
                *ret_code = first == NULL ? input_load(args, args->operands[0], &first) : EXIT_DONE;
                if (*ret_code != EXIT_DONE)
                    return 0;
                is_source = !input_matches(first, operand);
            }
            if (is_source == (pass == 0))
                ret_operands[n++] = operand;
        }
        if (pass == 1)
            return n_sources;
    }
    return n;
}

static enum exit_code run_ls(const struct args *args)
{
    if (args_has(args, "null") && (args_has(args, "json") || args_has(args, "tree")))
        return print_error(EXIT_USAGE, NULL, "--null cannot be combined with --json or --tree");
    if (args_has(args, "csv") &&
        (args_has(args, "json") || args_has(args, "tree") || args_has(args, "null")))
        return print_error(EXIT_USAGE, NULL,
                           "--csv cannot be combined with --json, --null or --tree");
    if (args_has(args, "tree") &&
        (args_has(args, "json") || args_has(args, "long") || args_has(args, "sort")))
        return print_error(EXIT_USAGE, NULL,
                           "--tree cannot be combined with --json, --long or --sort");
    if (!args_has(args, "tree") && (args_has(args, "depth") || args_has(args, "no-fold")))
        return print_error(EXIT_USAGE, NULL, "--depth and --no-fold need --tree");
    struct args sorted = *args;
    enum exit_code exit_code = EXIT_DONE;
    autofree const char **operands = calloc(args->n_operands + 1, sizeof(*operands));
    if (operands == NULL)
        return print_memory(NULL);
    const size_t n = sort_operands(args, operands, &exit_code);
    if (n > 1 && args_has(args, "csv"))
        return print_error(EXIT_USAGE, NULL, "--csv is for one SOURCE");
    sorted.operands = operands;
    return n == 0 ? exit_code : input_each(&sorted, n, "tensors", list_one);
}

const struct verb verb_ls = {
    .operands = "SOURCE... [GLOB...]",
    .text = "List the tensors of checkpoints: key, dtype, shape and bytes; on a terminal as\n"
            "a table ordered by key, elsewhere in file order, with exact numbers and tabs.\n"
            "With GLOBs, list only tensors whose whole key matches one of them, or that are\n"
            "in the module of that name; '*' matches dots too. What exists as a file and is\n"
            "not a name in the first SOURCE is a SOURCE. Keys are printed as they are, except\n"
            "for characters that a terminal acts on (\\xHH); keys in either form are accepted\n"
            "wherever one is expected.",
    .has_source = true,
    .examples = "weightfs ls model@1 '*.bias'\n"
                "weightfs ls --tree --include attention model@2",
    .options = {{"bytes", NULL, "-b: print exact sizes and counts"},
                {"csv", NULL, "print the table as CSV"},
                {"depth", "N", "with --tree: draw at most N levels"},
                {"human", NULL, "-h: print sizes and counts with a unit"},
                {"json", NULL, "print JSON, as docs/json.md describes it"},
                {"long", NULL, "-l: also offset, file, key in the file, changes"},
                {"no-fold", NULL, "with --tree: draw equal layers one by one"},
                {"null", NULL, "-0: print only keys, unescaped, each with a NUL"},
                {"sort", "ORDER", "key, name, size, dtype or none (as in the file)"},
                {"tree", NULL, "draw a tree with counts and sizes"}},
    .run = run_ls,
};

/* ---- find ---- */

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

/* A name, also as it is printed, may be anywhere in the key; a glob is for all of it. */
static void select_named(const struct wfs_catalog *catalog, const char *what, bool *marks)
{
    cleanup(glob_done) struct glob glob = glob_of(what);
    const bool is_glob = strpbrk(what, "*?[") != NULL;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const char *key = wfs_catalog_tensor(catalog, i)->key;
        const bool is_part = strstr(key, what) != NULL ||
                             (glob.unescaped != NULL && strstr(key, glob.unescaped) != NULL);
        marks[i] = marks[i] && (glob_matches(&glob, key) || (!is_glob && is_part));
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
    if (args->n_operands > 2)
        return print_error(EXIT_FOUND, args->operands[0], "no tensor fits all of %s",
                           wfs_count(args->n_operands - 1, "condition").text);
    return print_error(EXIT_FOUND, args->operands[0], "no tensor fits '%s'%s", wfs_quote(what).text,
                       is_condition(what) ? ""
                       : strpbrk(what, "*?[") != NULL
                           ? " (a glob matches whole keys: '*' takes the rest)"
                       : strchr(what, '=') != NULL ? ", as a part of the key; conditions compare "
                                                     "with =="
                                                   : suggestion_of_keys(catalog, what, false).text);
}

static enum exit_code run_find(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (args_has(args, "null") && args_has(args, "json"))
        return print_error(EXIT_USAGE, NULL, "--null cannot be combined with --json");
    enum exit_code exit_code = input_load(args, args->operands[0], &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    autofree bool *marks = calloc(wfs_catalog_n_tensors(catalog) + 1, sizeof(*marks));
    auto_listing struct listing listing = {0};
    if (marks != NULL)
        exit_code = select_all(catalog, args, marks);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (marks == NULL || !listing_init(&listing, catalog, marks, args))
        return print_memory(args->operands[0]);
    exit_code = listing_sort(&listing, args);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (listing.tensors.n_tensors == 0 && !args_has(args, "json"))
        return report_nothing(catalog, args);
    struct json_out json = {.file = stdout, .spelling = JSON_ASCII};
    const bool is_json = args_has(args, "json");
    if (is_json) {
        print_json_start(&json);
        json_out_open_array(&json, "tensors");
    }
    if (listing_print(&listing, args, is_json ? &json : NULL, NULL) < 0)
        return print_memory(args->operands[0]);
    if (is_json) {
        json_out_close(&json);
        json_out_close(&json);
    }
    return listing.tensors.n_tensors > 0 ? EXIT_DONE : EXIT_FOUND;
}

const struct verb verb_find = {
    .operands = "SOURCE WHAT...",
    .text = "List the tensors of a checkpoint that fit every WHAT, as ls does. WHAT is\n"
            "  NAME       a part of the key, such as query\n"
            "  GLOB       with * ? or [, for the whole key: 'encoder.*.bias'\n"
            "  CONDITION  with an operator, in the language of --where:\n"
            "             'dtype==F32 && bytes>1M', 'key =~ \"[qk]_proj\" || rank==1'\n"
            "The fields are key, leaf, dtype, shape, class, rank and bytes; the operators are\n"
            "== != =~ !~ < <= > >= && || ! and parentheses. 1M is 2^20 bytes, 1MB 10^6.\n"
            "The exit code is 1 if no tensor fits.",
    .has_source = true,
    .options = {{"bytes", NULL, "-b: print exact sizes and counts"},
                {"human", NULL, "-h: print sizes and counts with a unit"},
                {"json", NULL, "print JSON, as docs/json.md describes it"},
                {"long", NULL, "-l: also offset, file, key in the file, changes"},
                {"null", NULL, "-0: print only keys, unescaped, each with a NUL"},
                {"sort", "ORDER", "key, name, size, dtype or none (as in the file)"}},
    .run = run_find,
};
