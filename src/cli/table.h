/* SPDX-License-Identifier: MIT */
/*
 * A table on stdout. On a terminal: columns aligned by display width, under a heading. Columns that
 * are equal in all rows leave it for one line below. Where there is no room for the others, first
 * columns give way that can be narrower, then the last ones are not shown, and then keys are cut in
 * the middle with "…"; those that look alike then have a line of their own. Elsewhere: the exact
 * cells with tabs between them, as they come. Or as CSV, or as JSON, an object for each row.
 *
 *     static const struct table_column columns[] = {{.heading = "key", .is_key = true},
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
    bool is_key;         /* the name of the row: gives way last */
    bool stays;          /* while keys are whole, though keys would need its room */
    bool hides_zero;     /* is not shown where it is 0 in all rows */
    bool cuts_middle;    /* what is too wide; otherwise its end gives way */
    size_t n_least;      /* columns that are left when the terminal is narrow; 0: all */
};

enum table_form {
    TABLE_SCREEN,
    TABLE_TABS, /* cells escaped, lines end with a line feed */
    TABLE_NUL,  /* cells as they are, lines end with a NUL */
    TABLE_CSV,  /* the columns that have a member which is not optional, below their names */
    TABLE_JSON,
};

struct table {
    enum table_form form;
    bool is_human; /* numbers have three digits and a unit */
    /* Private. */
    const struct table_column *columns;
    size_t n_columns;
    size_t *widths;        /* of the widest cell of each column; later of the column */
    struct strbuf left;    /* the line about columns that have left */
    struct strbuf dropped; /* headings of those that had no room */
    struct json_out *json;
    struct strbuf cells; /* of the terminal: a byte for the colour, text, NUL */
    size_t n_cells;
    size_t n_screen; /* columns of the terminal */
    unsigned n_tail; /* percent of a key that is cut that are its end */
    bool *is_alike;  /* malloc'ed: rows whose cut keys look alike; NULL: none do */
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
void table_number(struct table *table, double number);    /* NaN: none */
void table_bar(struct table *table, enum screen_colour colour, double share, size_t n_columns);

/* Adds a line below the row that was ended last, of a terminal; frees the text. */
void table_below(struct table *table, enum screen_colour colour, struct strbuf *text);

/* Prints the rows on a terminal, and the line about columns that have left. -ENOMEM. */
int table_print(struct table *table);

/* Prints a line about columns that had no room, if there are any; below the total. */
void table_print_dropped(const struct table *table);
void table_done(struct table *table);

#define auto_table cleanup(table_done)

#endif
