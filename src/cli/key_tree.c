/* SPDX-License-Identifier: MIT */
/*
 * Keys that share leading components stand together once they are sorted, so the end of a run is
 * found by bisection, and the tree is drawn without being built: a frame per open directory. A
 * directory that holds only one other thing shares its line with it, so the indents together are
 * never longer than the keys.
 */
#include "cli/key_tree.h"

#include <weightfs/array.h>

#include "cli/input.h"
#include "cli/order.h"
#include "program/print.h"
#include "program/screen.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- runs ---- */

void key_tree_sort(struct key_tree *tree)
{
    order_sort(tree->tensors, tree->n_tensors, ORDER_KEY);
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
