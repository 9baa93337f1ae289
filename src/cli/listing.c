/* SPDX-License-Identifier: MIT */
/*
 * People read keys in order and need a total; programs get the order of the file and exact numbers.
 */
#include "cli/listing.h"

#include "cli/input.h"
#include "cli/jsonout.h"
#include "cli/order.h"
#include "cli/table.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool listing_init(struct listing *listing, const struct wfs_catalog *catalog, const bool *marks,
                  const struct args *args)
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

void listing_done(struct listing *listing)
{
    free(listing->tensors.tensors);
    *listing = (struct listing){0};
}

enum exit_code listing_sort(struct listing *listing, const struct args *args)
{
    const bool is_read =
        screen_width(STDOUT_FILENO) > 0 && !args_has(args, "json") && !args_has(args, "null");
    enum order order = is_read ? ORDER_KEY : ORDER_NONE;
    const enum exit_code exit_code = order_parse(args, &order);
    if (exit_code == EXIT_DONE)
        order_sort(listing->tensors.tensors, listing->tensors.n_tensors, order);
    return exit_code;
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
        printf("%s element%s, %s\n", amount_of_count(n_elems).text, n_elems == 1 ? "" : "s",
               amount_of_bytes(n_bytes).text);
    else
        printf("%s, %s\n", wfs_count(n_elems, "element").text, wfs_count(n_bytes, "byte").text);
    table_print_hidden(n_hidden);
}

static int print_table(const struct listing *listing, const struct args *args)
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

int listing_print(const struct listing *listing, const struct args *args)
{
    if (!args_has(args, "json"))
        return print_table(listing, args);
    json_listing(listing);
    return 0;
}
