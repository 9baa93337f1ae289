/* SPDX-License-Identifier: MIT */
/*
 * Cells for a terminal are kept until all widths are known, cut to the width of the terminal, so
 * that a row never takes much more memory than it takes room.
 */
#include "cli/table.h"

#include "program/print.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N_GAP = 2,         /* columns between two columns */
    N_KEY_SCREENS = 4, /* widths of a terminal that are kept of a key */
};

/* Returns whether CSV has the column: all rows have what JSON has always. */
static bool is_in_csv(const struct table_column *column)
{
    return column->member != NULL && !column->is_optional;
}

/* Writes a field of a line of CSV, of column i. A number is not protected from spreadsheets. */
static void write_field(struct table *table, size_t i, const char *text)
{
    autostrbuf struct strbuf field = {0};
    char *end;
    strtod(text, &end);
    const bool is_number = *end == '\0' && end != text;
    size_t n_last = table->n_columns;
    while (n_last > 0 && !is_in_csv(&table->columns[n_last - 1]))
        n_last--;
    if (is_number)
        strbuf_puts(&field, text);
    else
        strbuf_cell(&field, text, ',');
    if (field.has_failed)
        strbuf_fail(&table->cells);
    else
        printf("%s%s", field.bytes != NULL ? field.bytes : "", i + 1 < n_last ? "," : "\n");
}

void table_start(struct table *table, const struct table_column *columns, size_t n_columns,
                 const struct args *args)
{
    *table = (struct table){.columns = columns, .n_columns = n_columns};
    table->n_screen = screen_width(STDOUT_FILENO);
    table->has_colour = screen_has_colour(STDOUT_FILENO);
    table->form = args_has(args, "null")  ? TABLE_NUL
                  : args_has(args, "csv") ? TABLE_CSV
                  : table->n_screen == 0  ? TABLE_TABS
                                          : TABLE_SCREEN;
    table->is_human =
        table->form != TABLE_CSV &&
        (args_has(args, "human") || (table->form == TABLE_SCREEN && !args_has(args, "bytes")));
    for (size_t i = 0; table->form == TABLE_CSV && i < n_columns; i++) {
        if (is_in_csv(&columns[i]))
            write_field(table, i, columns[i].member);
    }
    if (table->form != TABLE_SCREEN)
        return;
    table->widths = calloc(n_columns, sizeof(*table->widths));
    if (table->widths == NULL)
        strbuf_fail(&table->cells);
}

void table_start_json(struct table *table, const struct table_column *columns, size_t n_columns,
                      struct json_out *json)
{
    *table = (struct table){
        .form = TABLE_JSON, .columns = columns, .n_columns = n_columns, .json = json};
}

/* ---- cells ---- */

/* Returns the column of the next cell, of which rows of JSON begin with the first. */
static const struct table_column *begin_cell(struct table *table)
{
    const size_t i = table->n_cells++ % table->n_columns;
    if (table->form == TABLE_JSON && i == 0)
        json_out_open_object(table->json, NULL);
    return &table->columns[i];
}

static void end_cell(struct table *table)
{
    if (table->form == TABLE_JSON && table->n_cells % table->n_columns == 0)
        json_out_close(table->json);
}

static enum screen_cut cut_of(const struct table_column *column)
{
    return column->is_key || column->cuts_middle ? CUT_MIDDLE : CUT_END;
}

static void write_cell(const struct table *table, enum screen_colour colour, const char *text)
{
    const bool is_last = table->n_cells % table->n_columns == 0;
    const bool has_colour = table->has_colour && colour != COLOUR_NONE && table->form == TABLE_TABS;
    fputs(has_colour ? screen_on(STDOUT_FILENO, colour) : "", stdout);
    fputs(text, stdout);
    fputs(has_colour ? screen_off(STDOUT_FILENO, colour) : "", stdout);
    putchar(!is_last ? '\t' : table->form == TABLE_NUL ? '\0' : '\n');
}

void table_text(struct table *table, enum screen_colour colour, const char *text)
{
    const struct table_column *column = begin_cell(table);
    const char *shown = text != NULL ? text : "-";
    if (table->form == TABLE_JSON) {
        if (column->member != NULL && (text != NULL || !column->is_optional))
            json_out_text(table->json, column->member, text);
    } else if (table->form == TABLE_CSV) {
        if (is_in_csv(column))
            write_field(table, (size_t)(column - table->columns), text != NULL ? text : "");
    } else if (table->form != TABLE_SCREEN && column->heading != NULL) {
        write_cell(table, colour, shown);
    } else if (table->widths != NULL && column->heading != NULL) {
        size_t *widest = &table->widths[column - table->columns];
        const char byte = (char)colour;
        strbuf_add(&table->cells, &byte, 1);
        /* Of a key, more is kept: where it is cut is decided after the last row. */
        const size_t n_kept = (column->is_key ? N_KEY_SCREENS : 1) * table->n_screen;
        size_t width = screen_cut(&table->cells, shown, n_kept, cut_of(column));
        width = width < table->n_screen ? width : table->n_screen;
        strbuf_add(&table->cells, "", 1);
        *widest = width > *widest ? width : *widest;
    } else if (table->form == TABLE_SCREEN) {
        strbuf_add(&table->cells, "\0", 2); /* a cell without a colour or a text */
    }
    end_cell(table);
}

void table_built(struct table *table, enum screen_colour colour, struct strbuf *text)
{
    if (text->has_failed)
        strbuf_fail(&table->cells);
    table_text(table, colour, text->bytes != NULL ? text->bytes : "");
    strbuf_done(text);
}

void table_name(struct table *table, enum screen_colour colour, const char *name)
{
    struct strbuf text = {0};
    if (name == NULL || table->form == TABLE_NUL || table->form == TABLE_JSON) {
        table_text(table, colour, name);
        return;
    }
    strbuf_escape(&text, name, strlen(name));
    table_built(table, colour, &text);
}

void table_shape(struct table *table, const struct wfs_shape *shape)
{
    struct strbuf text = {0};
    if (table->form == TABLE_JSON) {
        json_out_u64s(table->json, begin_cell(table)->member, shape->dims, shape->rank);
        end_cell(table);
        return;
    }
    print_add_shape(&text, shape);
    table_built(table, COLOUR_NONE, &text);
}

static void put_number(struct table *table, uint64_t n, const char *text)
{
    char exact[24];
    if (table->form == TABLE_JSON) {
        json_out_u64(table->json, begin_cell(table)->member, n);
        end_cell(table);
        return;
    }
    snprintf(exact, sizeof(exact), "%" PRIu64, n);
    table_text(table, COLOUR_NONE, text != NULL ? text : exact);
}

void table_bytes(struct table *table, uint64_t n_bytes)
{
    put_number(table, n_bytes, table->is_human ? amount_of_bytes(n_bytes).text : NULL);
}

void table_count(struct table *table, uint64_t n)
{
    put_number(table, n, table->is_human ? amount_of_count(n).text : NULL);
}

void table_exact(struct table *table, const uint64_t *n)
{
    if (n != NULL)
        put_number(table, *n, NULL);
    else
        table_text(table, COLOUR_NONE, NULL);
}

void table_number(struct table *table, double number)
{
    const int n_digits = table->form == TABLE_SCREEN ? 3 : table->form == TABLE_CSV ? 17 : 9;
    char text[40];
    if (table->form == TABLE_JSON && !isinf(number)) {
        json_out_double(table->json, begin_cell(table)->member, number);
        end_cell(table);
        return;
    }
    snprintf(text, sizeof(text), "%.*g", n_digits, number);
    table_text(table, COLOUR_NONE,
               isnan(number)               ? NULL
               : table->form == TABLE_JSON ? (number > 0 ? "Infinity" : "-Infinity")
                                           : text);
}

void table_bar(struct table *table, enum screen_colour colour, double share, size_t n_columns)
{
    struct strbuf bar = {0};
    screen_bar(&bar, share, n_columns);
    table_built(table, colour, &bar);
}

/* ---- the terminal ---- */

/* In place of a colour: the cells of a row that has a name only. */
enum { BELOW = 0x7f };

void table_below(struct table *table, enum screen_colour colour, struct strbuf *text)
{
    static const char none[] = {BELOW, '\0'};
    table_built(table, colour, text);
    for (size_t i = 1; i < table->n_columns; i++)
        strbuf_add(&table->cells, none, sizeof(none));
    table->n_cells += table->n_columns - 1;
}

/* Returns the columns that a column of the table takes, with the gap before it. One without content
 * is not shown. */
static size_t width_of(const struct table *table, size_t i)
{
    return table->widths[i] == 0 ? 0 : table->widths[i] + (i > 0 ? N_GAP : 0);
}

/* Returns how far a column may still give way: a key down to two fifths of the terminal. */
static size_t slack_of(const struct table *table, size_t i)
{
    const struct table_column *column = &table->columns[i];
    const size_t n_least = column->is_key ? table->n_screen * 2 / 5 + 1 : column->n_least;
    return n_least > 0 && table->widths[i] > n_least ? table->widths[i] - n_least : 0;
}

/* Returns the columns of the terminal that all take, when those other than keys have given way, or
 * keys too. */
static size_t least_width(const struct table *table, bool cuts_keys)
{
    size_t width = 0;
    for (size_t i = 0; i < table->n_columns; i++) {
        const bool gives_way = cuts_keys || !table->columns[i].is_key;
        width += width_of(table, i) - (gives_way ? slack_of(table, i) : 0);
    }
    return width;
}

/* Takes the last columns off the screen until the others have room. */
static void drop(struct table *table, bool cuts_keys)
{
    for (size_t i = table->n_columns; i-- > 0 && least_width(table, cuts_keys) > table->n_screen;) {
        const struct table_column *column = &table->columns[i];
        if (!column->is_key && (!column->stays || cuts_keys))
            table->widths[i] = 0;
    }
}

/* Takes columns off the screen until there is room; then those come back that fit into what a wider
 * one has left. Notes the headings of the others. */
static void make_room(struct table *table)
{
    autofree size_t *widths = calloc(table->n_columns, sizeof(*widths));
    if (widths == NULL) {
        strbuf_fail(&table->dropped);
        return;
    }
    memcpy(widths, table->widths, table->n_columns * sizeof(*widths));
    drop(table, false);
    drop(table, true);
    for (size_t i = 0; i < table->n_columns; i++) {
        if (table->widths[i] == widths[i])
            continue;
        table->widths[i] = widths[i];
        if (least_width(table, false) <= table->n_screen)
            continue;
        table->widths[i] = 0;
        if (table->columns[i].heading[0] != '\0')
            strbuf_printf(&table->dropped, "%s%s", table->dropped.n_bytes > 0 ? ", " : "",
                          table->columns[i].heading);
    }
}

/* Makes the widest columns narrower, one column of the screen after the other; keys come last. */
static void shrink(struct table *table)
{
    size_t width = 0;
    for (size_t i = 0; i < table->n_columns; i++)
        width += width_of(table, i);
    for (bool cuts_keys = false; width > table->n_screen;) {
        size_t widest = table->n_columns;
        for (size_t i = 0; i < table->n_columns; i++) {
            if (table->columns[i].is_key == cuts_keys && slack_of(table, i) > 0 &&
                (widest == table->n_columns || table->widths[i] > table->widths[widest]))
                widest = i;
        }
        if (widest < table->n_columns) {
            table->widths[widest]--;
            width--;
        } else if (!cuts_keys) {
            cuts_keys = true;
        } else {
            return;
        }
    }
}

/* A key as it is cut. */
struct shown {
    const char *text, *whole;
    size_t row;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct shown *)a)->text, ((const struct shown *)b)->text);
}

/* Returns how many of the first n_most cut texts of a column look like another of them, and notes
 * which rows have these; NULL: nowhere. */
static size_t count_alike(const struct table *table, size_t column, unsigned n_percent,
                          size_t n_most, bool *is_alike)
{
    autostrbuf struct strbuf texts = {0};
    const size_t n_rows = table->n_cells / table->n_columns, n = n_rows < n_most ? n_rows : n_most;
    autofree struct shown *shown = calloc(n + 1, sizeof(*shown));
    const char *cell = table->cells.bytes;
    size_t n_alike = 0;
    for (size_t i = 0; i < n * table->n_columns; i++) {
        if (i % table->n_columns == column && shown != NULL) {
            shown[i / table->n_columns].whole = cell + 1;
            screen_cut(&texts, cell + 1, table->widths[column], n_percent);
            strbuf_add(&texts, "", 1);
        }
        cell += strlen(cell + 1) + 2;
    }
    if (texts.has_failed || shown == NULL)
        return 0;
    const char *text = texts.bytes;
    for (size_t i = 0; i < n; i++, text += strlen(text) + 1) {
        shown[i].text = text;
        shown[i].row = i;
    }
    qsort(shown, n, sizeof(*shown), by_text);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(shown[i - 1].text, shown[i].text) != 0 ||
            strcmp(shown[i - 1].whole, shown[i].whole) == 0)
            continue;
        n_alike++;
        if (is_alike != NULL)
            is_alike[shown[i - 1].row] = is_alike[shown[i].row] = true;
    }
    return n_alike;
}

/* Keys are cut where the fewest of them look alike, near the middle if they can be. Those that look
 * alike all the same are not cut: see print_row. */
static void choose_cut(struct table *table)
{
    enum { STEP = 4, N_STEPS = 16, N_HEAD = 5, N_LOOKED = 1000 }; /* N_HEAD: of "  -> KEY" */
    size_t i = 0, least = SIZE_MAX;
    while (i < table->n_columns && (!table->columns[i].is_key || table->widths[i] == 0))
        i++;
    for (unsigned k = 0; i < table->n_columns && least > 0 && k <= N_STEPS; k++) {
        const unsigned further = (k + 1) / 2 * STEP;
        const unsigned share = k % 2 == 0 ? CUT_MIDDLE - further : CUT_MIDDLE + further;
        const size_t n_tail = table->widths[i] * share / 100;
        if (k > 0 && table->widths[i] < n_tail + 1 + N_HEAD)
            continue;
        const size_t n_alike = count_alike(table, i, share, N_LOOKED, NULL);
        if (n_alike < least)
            table->n_tail = share;
        least = n_alike < least ? n_alike : least;
    }
    if (i == table->n_columns || least == 0)
        return;
    table->is_alike = calloc(table->n_cells / table->n_columns, sizeof(*table->is_alike));
    if (table->is_alike == NULL)
        strbuf_fail(&table->left);
    else
        (void)count_alike(table, i, table->n_tail, SIZE_MAX, table->is_alike);
}

/* Adds a cell to a line of which n_left columns are free; returns how many are then. */
static size_t add_cell(const struct table *table, struct strbuf *line, size_t i,
                       enum screen_colour colour, const char *text, size_t n_left)
{
    autostrbuf struct strbuf cell = {0};
    const size_t room = table->widths[i] < n_left ? table->widths[i] : n_left;
    const struct table_column *column = &table->columns[i];
    const size_t width =
        screen_cut(&cell, text, room, column->is_key ? table->n_tail : cut_of(column));
    const bool has_colour = table->has_colour && colour != COLOUR_NONE && width > 0;
    const size_t n_before = table->columns[i].is_right ? room - width : 0;
    const size_t n_after = table->columns[i].is_right ? 0 : room - width;
    strbuf_printf(line, "%*s%s%s%s%*s", (int)n_before, "",
                  has_colour ? screen_on(STDOUT_FILENO, colour) : "",
                  cell.bytes != NULL ? cell.bytes : "",
                  has_colour ? screen_off(STDOUT_FILENO, colour) : "", (int)n_after, "");
    if (cell.has_failed)
        strbuf_fail(line);
    return n_left - room;
}

/* Prints a row, whose cells follow each other; the heading has none. A key that would look like
 * another has a line of its own before it. Returns what follows the row. */
static const char *print_row(const struct table *table, const char *cells, bool is_alike,
                             bool *ret_has_failed)
{
    autostrbuf struct strbuf line = {0};
    size_t n_left = table->n_screen;
    for (size_t i = 0; i < table->n_columns; i++) {
        const enum screen_colour colour =
            cells != NULL ? (enum screen_colour)(unsigned char)cells[0] : COLOUR_HEADING;
        const char *text = cells != NULL ? cells + 1 : table->columns[i].heading, *shown = text;
        if (is_alike && table->columns[i].is_key) {
            const bool has_colour = table->has_colour && colour != COLOUR_NONE;
            printf("%s%s%s\n", has_colour ? screen_on(STDOUT_FILENO, colour) : "", text,
                   has_colour ? screen_off(STDOUT_FILENO, colour) : "");
            shown = "";
        }
        if (table->widths[i] > 0 && i > 0) {
            strbuf_puts(&line, "  ");
            n_left -= n_left < N_GAP ? n_left : N_GAP;
        }
        if (table->widths[i] > 0)
            n_left = add_cell(table, &line, i, colour, shown, n_left);
        cells = cells != NULL ? text + strlen(text) + 1 : NULL;
    }
    *ret_has_failed = *ret_has_failed || line.has_failed;
    while (line.n_bytes > 0 && line.bytes[line.n_bytes - 1] == ' ')
        line.bytes[--line.n_bytes] = '\0';
    if (!line.has_failed && line.n_bytes > 0)
        puts(line.bytes);
    return cells;
}

/*
 * Takes the columns off the screen that have one text in all rows: what is nothing, for good; what
 * is something in two rows or more, for the line below. A key stays, and what has no heading.
 */
static void leave_equal(struct table *table)
{
    autofree const char **firsts = calloc(table->n_columns, sizeof(*firsts));
    autofree bool *differs = calloc(table->n_columns, sizeof(*differs));
    const char *cell = table->cells.bytes;
    if (firsts == NULL || differs == NULL) {
        strbuf_fail(&table->left);
        return;
    }
    for (size_t i = 0; i < table->n_cells; i++) {
        const size_t column = i % table->n_columns;
        if (i < table->n_columns)
            firsts[column] = cell + 1;
        differs[column] =
            differs[column] || (cell[0] != BELOW && strcmp(firsts[column], cell + 1) != 0);
        cell += strlen(cell + 1) + 2;
    }
    for (size_t i = 0; i < table->n_columns; i++) {
        const struct table_column *column = &table->columns[i];
        if (column->is_key || differs[i] || table->widths[i] == 0 || column->heading[0] == '\0')
            continue;
        const bool is_nothing =
            strcmp(firsts[i], "-") == 0 || (column->hides_zero && strcmp(firsts[i], "0") == 0);
        if (!is_nothing && table->n_cells == table->n_columns)
            continue;
        if (!is_nothing)
            strbuf_printf(&table->left, "%s%s %s",
                          table->left.n_bytes > 0 ? ", " : "in all rows: ", column->heading,
                          firsts[i]);
        table->widths[i] = 0;
    }
}

int table_print(struct table *table)
{
    bool has_failed = table->cells.has_failed;
    if (table->form != TABLE_SCREEN || table->n_cells == 0 || has_failed)
        return has_failed ? -ENOMEM : 0;
    leave_equal(table);
    for (size_t i = 0; i < table->n_columns; i++) {
        const size_t n_heading =
            table->widths[i] > 0 ? screen_columns(table->columns[i].heading) : 0;
        if (table->widths[i] < n_heading)
            table->widths[i] = n_heading;
    }
    make_room(table);
    shrink(table);
    choose_cut(table);
    print_row(table, NULL, false, &has_failed);
    const char *cells = table->cells.bytes;
    const size_t n_rows = table->n_cells / table->n_columns;
    for (size_t i = 0; i < n_rows && !has_failed && !ferror(stdout); i++)
        cells = print_row(table, cells, table->is_alike != NULL && table->is_alike[i], &has_failed);
    if (table->left.n_bytes > 0 && !table->left.has_failed)
        puts(table->left.bytes);
    return has_failed || table->left.has_failed || table->dropped.has_failed ? -ENOMEM : 0;
}

void table_print_dropped(const struct table *table)
{
    if (table->dropped.n_bytes > 0)
        printf("no room for: %s\n", table->dropped.bytes);
}

void table_done(struct table *table)
{
    free(table->widths);
    free(table->is_alike);
    strbuf_done(&table->cells);
    strbuf_done(&table->left);
    strbuf_done(&table->dropped);
    table->widths = NULL;
}
