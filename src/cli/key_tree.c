/* SPDX-License-Identifier: MIT */
/*
 * Keys that share leading components stand together once they are sorted, so the end of a run is
 * found by bisection, and the tree is drawn without being built: a frame per open directory. A
 * directory that holds only one other thing shares its line with it, so the indents together are
 * never longer than the keys.
 */
#include "cli/key_tree.h"

#include "cli/input.h"
#include "cli/table.h"
#include "program/print.h"
#include "program/terminal.h"

#include <weightfs/array.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- keys ---- */

/*
 * A dot sorts before all else, so that a key is directly followed by those that it is a prefix of.
 */
static int rank_of(char c)
{
    return c == '\0' ? 0 : c == '.' ? 1 : (unsigned char)c + 1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Runs of digits are compared by length, then as text: the order of numbers. */
int order_of_keys(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    size_t i = 0;
    while (a[i] == b[i] && a[i] != '\0')
        i++;
    const size_t n_a = strspn(a + i, digits), n_b = strspn(b + i, digits);
    const bool is_in_number = (i > 0 && is_digit(a[i - 1])) || (n_a > 0 && n_b > 0);
    if (is_in_number && n_a != n_b)
        return n_a < n_b ? -1 : 1;
    return rank_of(a[i]) - rank_of(b[i]);
}

/* ---- runs ---- */

static int by_key(const void *a, const void *b)
{
    const struct wfs_tensor *const *x = a, *const *y = b;
    return order_of_keys((*x)->key, (*y)->key);
}

void key_tree_sort(struct key_tree *tree)
{
    qsort(tree->tensors, tree->n_tensors, sizeof(*tree->tensors), by_key);
}

size_t key_tree_component(const char *key, size_t n_prefix)
{
    return strcspn(key + n_prefix, ".");
}

size_t key_tree_end(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix)
{
    const char *name = tree->tensors[i]->key + n_prefix;
    const size_t n_name = key_tree_component(tree->tensors[i]->key, n_prefix);
    size_t low = i + 1;
    while (low < end) {
        const size_t middle = low + (end - low) / 2;
        const char *other = tree->tensors[middle]->key + n_prefix;
        if (strncmp(name, other, n_name) == 0 && (other[n_name] == '.' || other[n_name] == '\0'))
            low = middle + 1;
        else
            end = middle;
    }
    return low;
}

/* Returns the bytes of the longest run of whole components, dots included, that every key of [i,
 * end) begins with. */
static size_t common_prefix(const struct key_tree *tree, size_t i, size_t end)
{
    const char *first = tree->tensors[i]->key;
    const char *last = tree->tensors[end - 1]->key;
    size_t n_prefix = 0;
    for (size_t j = 0; first[j] != '\0' && first[j] == last[j]; j++) {
        if (first[j] == '.')
            n_prefix = j + 1;
    }
    return n_prefix;
}

uint64_t key_tree_n_bytes(const struct key_tree *tree, size_t i, size_t end)
{
    uint64_t n_bytes = 0;
    for (; i < end; i++)
        n_bytes = input_add(n_bytes, tree->tensors[i]->n_bytes);
    return n_bytes;
}

uint64_t key_tree_n_elems(const struct key_tree *tree, size_t i, size_t end)
{
    uint64_t n_elems = 0;
    for (; i < end; i++)
        n_elems = input_add(n_elems, input_n_elems(tree->tensors[i]));
    return n_elems;
}

/* ---- equal runs ---- */

/* Reads the component at n_prefix as a number, spelled as numbers are printed. */
static bool number_at(const char *key, size_t n_prefix, uint64_t *ret)
{
    enum { N_DIGITS = 18 };
    const char *digit = key + n_prefix;
    const size_t n = key_tree_component(key, n_prefix);
    if (n == 0 || n > N_DIGITS || (n > 1 && *digit == '0'))
        return false;
    *ret = 0;
    for (size_t i = 0; i < n; i++, digit++) {
        if (*digit < '0' || *digit > '9')
            return false;
        *ret = *ret * 10 + (uint64_t)(*digit - '0');
    }
    return true;
}

/* Returns true for n tensors from a and from b on that differ in the component at n_prefix only. */
static bool is_equal(const struct key_tree *tree, size_t a, size_t b, size_t n, size_t n_prefix)
{
    for (size_t i = 0; i < n; i++) {
        const struct wfs_tensor *x = tree->tensors[a + i], *y = tree->tensors[b + i];
        if (x->dtype != y->dtype || !wfs_shape_is_equal(&x->shape, &y->shape) ||
            strcmp(x->key + n_prefix + key_tree_component(x->key, n_prefix),
                   y->key + n_prefix + key_tree_component(y->key, n_prefix)) != 0)
            return false;
    }
    return true;
}

/* Returns the end of the entry at i: of a tensor, or of a directory. */
static size_t end_of_entry(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix)
{
    const char *key = tree->tensors[i]->key;
    const bool is_tensor = key[n_prefix + key_tree_component(key, n_prefix)] == '\0';
    return is_tensor ? i + 1 : key_tree_end(tree, i, end, n_prefix);
}

/* Returns the first entry of [i, end) with those after it that are equal but for the next number.
 */
static struct key_run equals_at(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix)
{
    uint64_t number, next;
    struct key_run run = {.start = i, .n_copies = 1, .n_number = n_prefix};
    run.end = run.end_one = end_of_entry(tree, i, end, n_prefix);
    if (!number_at(tree->tensors[i]->key, n_prefix, &number))
        return run;
    while (run.end < end && number_at(tree->tensors[run.end]->key, n_prefix, &next) &&
           next == number + run.n_copies) {
        const size_t end_next = end_of_entry(tree, run.end, end, n_prefix);
        if (end_next - run.end != run.end_one - i ||
            !is_equal(tree, i, run.end, run.end_one - i, n_prefix))
            break;
        run.end = end_next;
        run.n_copies++;
    }
    return run;
}

struct key_run key_tree_run(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix,
                            bool folds_equals)
{
    struct key_run run = {.start = i, .n_copies = 1};
    if (folds_equals)
        run = equals_at(tree, i, end, n_prefix);
    else
        run.end = run.end_one = end_of_entry(tree, i, end, n_prefix);
    run.n_prefix = run.end_one - i > 1 ? common_prefix(tree, i, run.end_one) : n_prefix;
    if (run.n_copies > 1 || !folds_equals || run.end - i < 2)
        return run;
    /* All that is in a directory may be equal. */
    struct key_run inner = equals_at(tree, i, run.end, run.n_prefix);
    if (inner.n_copies < 2 || inner.end != run.end)
        return run;
    inner.n_prefix = inner.end_one - i > 1 ? common_prefix(tree, i, inner.end_one) : run.n_prefix;
    return inner;
}

void key_tree_name(const struct key_tree *tree, const struct key_run *run, size_t n_prefix,
                   struct strbuf *out)
{
    const char *key = tree->tensors[run->start]->key;
    const size_t n_end = run->end_one - run->start > 1 ? run->n_prefix - 1 : strlen(key);
    size_t n_begin = n_prefix;
    uint64_t number;
    if (run->n_copies > 1 && number_at(key, run->n_number, &number)) {
        screen_escape(out, key + n_prefix, run->n_number - n_prefix);
        strbuf_printf(out, "{%" PRIu64 "..%" PRIu64 "}", number, number + run->n_copies - 1);
        n_begin = run->n_number + key_tree_component(key, run->n_number);
    } else if (n_end == n_begin) {
        strbuf_puts(out, "%");
    }
    screen_escape(out, key + n_begin, n_end - n_begin);
}

/* ---- drawing ---- */

struct frame {
    size_t end;      /* of the tensors in it */
    size_t next;     /* what is drawn after it */
    size_t n_prefix; /* bytes of the key that lead to it */
    bool is_last;    /* nothing follows it in its parent */
};

struct drawing {
    const struct key_tree *tree;
    const struct key_tree_style *style;
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

static void add_bytes(const struct key_tree_style *style, uint64_t n_bytes, struct strbuf *line)
{
    strbuf_puts(line,
                style->is_exact ? wfs_count(n_bytes, "byte").text : amount_of_bytes(n_bytes).text);
}

static void add_tensor(const struct key_tree_style *style, const struct wfs_tensor *tensor,
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

int key_tree_draw(struct key_tree *tree, const struct key_tree_style *style)
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

/* ---- a table of modules ---- */

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
    char share_text[16];
    const double share = n_all > 0 ? (double)totals->n_bytes / (double)n_all : 0;
    snprintf(share_text, sizeof(share_text), "%.1f%%", 100 * share);
    table_text(table, COLOUR_NONE, name);
    if (table->n_columns == N_COLUMNS) {
        table_count(table, totals->n_tensors);
        table_count(table, totals->n_elems);
    }
    table_bytes(table, totals->n_bytes);
    table_text(table, COLOUR_NONE, share_text);
    table_bar(table, COLOUR_ADDED, share, N_BAR);
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
