/* SPDX-License-Identifier: MIT */
/*
 * A table on stdout. On a terminal: columns aligned by display width, under a heading, cut with "…"
 * so that no line is wider than the terminal. Elsewhere: the exact cells with tabs between them, as
 * they come. Or as CSV, or as JSON, an object for each row.
 *
 *     static const struct table_column columns[] = {{.heading = "key", .n_least = 8,
 *                                                    .cut = CUT_MIDDLE},
 *                                                   {.heading = "size", .is_right = true}};
 *     auto_table struct table table;
 *     table_start(&table, columns, 2, &args);
 *     for each row {
 *         table_name(&table, COLOUR_NONE, key);
 *         table_bytes(&table, n_bytes);
 *     }
 *     code = table_print(&table);
 */
#ifndef WFS_TABLE_H
#define WFS_TABLE_H

#include <weightfs/json_out.h>
#include <weightfs/strbuf.h>
#include <weightfs/tensor.h>

#include "cli/args.h"
#include "program/terminal.h"

struct table_column {
    const char *heading; /* NULL: only in JSON */
    const char *member;  /* its name in JSON; NULL: not there */
    bool is_optional;    /* not there either where the row has none */
    bool is_right;       /* aligned to the right */
    bool leaves_equal;   /* leaves a screen where it is the same in all rows, for a line below */
    size_t n_least;      /* columns that are left when the terminal is narrow; 0: all */
    enum screen_cut cut;
};

enum table_form {
    TABLE_SCREEN,
    TABLE_TABS, /* cells escaped, lines end with a line feed */
    TABLE_NUL,  /* cells as they are, lines end with a NUL */
    TABLE_CSV,  /* the columns that have a member, below their names */
    TABLE_JSON,
};

struct table {
    enum table_form form;
    bool is_human; /* numbers have three digits and a unit */
    /* Private. */
    const struct table_column *columns;
    size_t n_columns;
    size_t *widths;     /* of the widest cell of each column; later of the column */
    struct strbuf left; /* the line about columns that have left */
    struct json_out *json;
    struct strbuf cells; /* of the terminal: a byte for the colour, text, NUL */
    size_t n_cells;
    size_t n_screen; /* columns of the terminal */
    bool has_colour;
};

/*
 * The form follows from stdout and the options --null, --csv, --human and --bytes. Nothing fails
 * before table_print.
 */
void table_start(struct table *table, const struct table_column *columns, size_t n_columns,
                 const struct args *args);

/* The same, with the rows as items of the array that is open. */
void table_start_json(struct table *table, const struct table_column *columns, size_t n_columns,
                      struct json_out *json);

/* Each adds the next cell; after the last column begins the next row. NULL is "-" in a text. */
void table_name(struct table *table, enum screen_colour colour, const char *name); /* of a file */
void table_text(struct table *table, enum screen_colour colour, const char *text); /* our own */
void table_built(struct table *table, enum screen_colour colour, struct strbuf *text); /* freed */
void table_shape(struct table *table, const struct wfs_shape *shape);
void table_bytes(struct table *table, uint64_t n_bytes);
void table_count(struct table *table, uint64_t n);
void table_exact(struct table *table, const uint64_t *n); /* without a unit */
void table_bar(struct table *table, enum screen_colour colour, double share, size_t n_columns);

/*
 * Prints the rows on a terminal, without columns that are empty, and a line about those that have
 * left. Returns how many columns at the
 * end had no room, or -ENOMEM.
 */
int table_print(struct table *table);

/* Prints a line about columns that had no room, if there are any; below the total. */
void table_print_hidden(int n_hidden);
void table_done(struct table *table);

#define auto_table cleanup(table_done)

#endif
