/* SPDX-License-Identifier: MIT */
/*
 * Equal layers are one module: "encoder.layer.{0..11}".
 */
#include "cli/modules.h"

#include "cli/input.h"
#include "cli/table.h"
#include "program/print.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_BAR = 20, N_MOST = 16 /* rows of the table */, N_WIDE = 60 /* columns of a terminal */ };

/* In the order in which they are shown; a narrow terminal has room for a few only. */
enum { NAME, TENSORS, ELEMENTS, SIZE, SHARE, BAR, N_COLUMNS };

static const struct table_column columns[] = {
    [NAME] = {.n_least = 8, .cut = CUT_MIDDLE},
    [TENSORS] = {.heading = "tensors", .is_right = true},
    [ELEMENTS] = {.heading = "elements", .is_right = true},
    [SIZE] = {.heading = "size", .is_right = true},
    [SHARE] = {.heading = "share", .is_right = true},
    [BAR] = {.heading = "", .n_least = 4},
};

/* A table whose first column has the heading; the columns must last as long. */
static void start(struct table *table, struct table_column own[N_COLUMNS], const char *heading,
                  const struct args *args)
{
    memcpy(own, columns, sizeof(columns));
    own[NAME].heading = heading;
    const bool is_narrow = screen_width(STDOUT_FILENO) < N_WIDE;
    if (is_narrow)
        memcpy(own + TENSORS, columns + SIZE, (N_COLUMNS - SIZE) * sizeof(*own));
    table_start(table, own, is_narrow ? N_COLUMNS - (SIZE - TENSORS) : N_COLUMNS, args);
}

static void add_row(struct table *table, const char *name, const struct module_totals *totals,
                    uint64_t n_all)
{
    autostrbuf struct strbuf bar = {0};
    char share_text[16];
    const double share = n_all > 0 ? (double)totals->n_bytes / (double)n_all : 0;
    snprintf(share_text, sizeof(share_text), "%.1f%%", 100 * share);
    screen_bar(&bar, share, N_BAR);
    table_text(table, COLOUR_NONE, name);
    if (table->n_columns == N_COLUMNS) {
        table_count(table, totals->n_tensors);
        table_count(table, totals->n_elems);
    }
    table_bytes(table, totals->n_bytes);
    table_text(table, COLOUR_NONE, share_text);
    table_text(table, COLOUR_ADDED, bar.bytes != NULL ? bar.bytes : "");
}

/* ---- modules ---- */

/* Adds what is in a directory: tensors [i, end), which share n_prefix bytes. */
static int add_entries(struct modules *modules, size_t i, size_t end, size_t n_prefix)
{
    while (i < end) {
        const struct key_run run =
            key_tree_run(modules->tree, i, end, n_prefix, modules->folds_equals);
        if (array_reserve(&modules->items, sizeof(*modules->items), modules->n_items, 1,
                          &modules->n_room) < 0)
            return -ENOMEM;
        modules->items[modules->n_items++] =
            (struct module){run, key_tree_n_bytes(modules->tree, run.start, run.end)};
        i = run.end;
    }
    return 0;
}

/* Replaces a directory that has more than half of the bytes by its entries. Returns whether there
 * was one, and few enough of them. */
static int expand(struct modules *modules, uint64_t n_all)
{
    for (size_t i = 0; i < modules->n_items && modules->n_items < modules->n_most; i++) {
        const struct module module = modules->items[i];
        const size_t n_before = modules->n_items;
        if (module.n_bytes <= n_all / 2 || module.run.n_copies > 1 ||
            module.run.end - module.run.start < 2)
            continue;
        const int code =
            add_entries(modules, module.run.start, module.run.end, module.run.n_prefix);
        if (code < 0)
            return code;
        if (modules->n_items - 1 > modules->n_most) {
            modules->n_items = n_before;
            return 0;
        }
        modules->items[i] = modules->items[--modules->n_items];
        return 1;
    }
    return 0;
}

int modules_find(struct modules *modules)
{
    const uint64_t n_all = key_tree_n_bytes(modules->tree, 0, modules->tree->n_tensors);
    int code = add_entries(modules, 0, modules->tree->n_tensors, 0);
    while (code == 0 && (code = expand(modules, n_all)) > 0)
        code = 0;
    return code;
}

void modules_done(struct modules *modules)
{
    free(modules->items);
    *modules = (struct modules){0};
}

static int by_size(const void *a, const void *b)
{
    const struct module *x = a, *y = b;
    if (x->n_bytes != y->n_bytes)
        return x->n_bytes > y->n_bytes ? -1 : 1;
    return (x->run.start > y->run.start) - (x->run.start < y->run.start);
}

static int print_items(const struct modules *modules, uint64_t n_all, const struct args *args)
{
    auto_table struct table table;
    struct table_column own[N_COLUMNS];
    start(&table, own, "module", args);
    for (size_t i = 0; i < modules->n_items && i < N_MOST; i++) {
        const struct key_run *run = &modules->items[i].run;
        const struct module_totals totals = {run->end - run->start, modules->items[i].n_bytes,
                                             key_tree_n_elems(modules->tree, run->start, run->end)};
        autostrbuf struct strbuf name = {0};
        key_tree_name(modules->tree, run, 0, &name);
        if (name.has_failed)
            return -ENOMEM;
        add_row(&table, name.bytes, &totals, n_all);
    }
    putchar('\n');
    const int code = table_print(&table);
    if (code >= 0 && modules->n_items > N_MOST)
        printf("and %s\n", wfs_count(modules->n_items - N_MOST, "smaller one").text);
    return code < 0 ? code : 0;
}

int modules_print(const struct key_tree *tree, const struct args *args)
{
    cleanup(modules_done) struct modules modules = {
        .tree = tree, .folds_equals = true, .n_most = N_MOST};
    int code = modules_find(&modules);
    if (code == 0 && modules.n_items > 0) {
        qsort(modules.items, modules.n_items, sizeof(*modules.items), by_size);
        code = print_items(&modules, key_tree_n_bytes(tree, 0, tree->n_tensors), args);
    }
    return code;
}

/* ---- dtypes ---- */

int modules_print_dtypes(const struct module_totals by_dtype[WFS_N_DTYPES], const struct args *args)
{
    auto_table struct table table;
    struct table_column own[N_COLUMNS];
    uint64_t n_all = 0;
    start(&table, own, "dtype", args);
    for (int dtype = 0; dtype < WFS_N_DTYPES; dtype++)
        n_all = input_add(n_all, by_dtype[dtype].n_bytes);
    for (int dtype = 0; dtype < WFS_N_DTYPES; dtype++) {
        if (by_dtype[dtype].n_tensors > 0)
            add_row(&table, wfs_dtype_name((enum wfs_dtype)dtype), &by_dtype[dtype], n_all);
    }
    putchar('\n');
    const int code = table_print(&table);
    return code < 0 ? code : 0;
}
