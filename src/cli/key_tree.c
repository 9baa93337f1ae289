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

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- drawing ---- */

struct frame {
    size_t end;      /* of the tensors in it */
    size_t n_prefix; /* bytes of the key that lead to it */
    bool is_last;    /* nothing follows it in its parent */
};

struct drawing {
    FILE *out;
    const struct key_tree *tree;
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

static void print_indent(const struct drawing *drawing, bool is_last)
{
    for (size_t i = 1; i < drawing->n_frames; i++)
        fputs(drawing->frames[i].is_last ? "    " : "|   ", drawing->out);
    fputs(is_last ? "`-- " : "|-- ", drawing->out);
}

static void print_name(const struct drawing *drawing, const char *name, size_t n_bytes)
{
    if (n_bytes == 0)
        putc('%', drawing->out);
    print_escaped_n(drawing->out, name, n_bytes);
}

static void print_tensor(const struct drawing *drawing, size_t i, size_t n_prefix)
{
    const struct wfs_tensor *tensor = drawing->tree->tensors[i];
    const char *name = tensor->key + n_prefix;
    print_name(drawing, name, strlen(name));
    fprintf(drawing->out, "  %s ", wfs_dtype_name(tensor->dtype));
    print_shape(drawing->out, &tensor->shape);
    fputs("  ", drawing->out);
    print_size(drawing->out, tensor->n_bytes);
    putc('\n', drawing->out);
}

static void print_totals(const struct drawing *drawing, size_t i, size_t end)
{
    fprintf(drawing->out, "  (%s, ", wfs_count(end - i, "tensor").text);
    print_size(drawing->out, key_tree_n_bytes(drawing->tree, i, end));
    fputs(")\n", drawing->out);
}

/* Prints one line: the tensor at *i, or its directory. Moves *i to what is printed next. */
static int print_next(struct drawing *drawing, size_t *i)
{
    const struct frame *frame = &drawing->frames[drawing->n_frames - 1];
    const size_t n_prefix = frame->n_prefix;
    const char *key = drawing->tree->tensors[*i]->key;
    size_t end = key_tree_end(drawing->tree, *i, frame->end, n_prefix);
    if (key[n_prefix + key_tree_component(key, n_prefix)] == '\0')
        end = *i + 1;
    const bool is_last = end == frame->end;
    print_indent(drawing, is_last);
    if (end - *i == 1) {
        print_tensor(drawing, (*i)++, n_prefix);
        return 0;
    }
    const size_t n_common = common_prefix(drawing->tree, *i, end);
    print_name(drawing, key + n_prefix, n_common - n_prefix - 1);
    print_totals(drawing, *i, end);
    return push(drawing, (struct frame){end, n_common, is_last});
}

int key_tree_draw(FILE *out, struct key_tree *tree)
{
    struct drawing drawing = {.out = out, .tree = tree};
    key_tree_sort(tree);
    putc('.', out);
    print_totals(&drawing, 0, tree->n_tensors);
    int result = push(&drawing, (struct frame){.end = tree->n_tensors, .is_last = true});
    for (size_t i = 0; result == 0 && drawing.n_frames > 0 && !ferror(out);) {
        if (i == drawing.frames[drawing.n_frames - 1].end)
            drawing.n_frames--;
        else
            result = print_next(&drawing, &i);
    }
    free(drawing.frames);
    return result;
}
