/* SPDX-License-Identifier: MIT */
/*
 * The tree is drawn from sorted keys without building it: a frame per open directory. A directory
 * that holds only one other thing shares its line with it, so the indents together are never longer
 * than the keys.
 */
#include "cli/drawing.h"

#include <weightfs/array.h>

#include "cli/input.h"
#include "program/print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct frame {
    size_t end;      /* of the tensors in it */
    size_t n_prefix; /* bytes of key that lead to it */
    bool is_last;    /* nothing follows it in its parent */
};

struct drawing {
    FILE *out;
    const struct grouping *grouping;
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
    const struct wfs_tensor *tensor = drawing->grouping->tensors[i];
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
    fprintf(drawing->out, "  (%zu tensor%s, ", end - i, end - i == 1 ? "" : "s");
    print_size(drawing->out, grouping_n_bytes(drawing->grouping, i, end));
    fputs(")\n", drawing->out);
}

/* One line: the tensor at *i, or the directory that it is in; *i moves to what is to be printed
 * next. */
static int print_next(struct drawing *drawing, size_t *i)
{
    const struct frame *frame = &drawing->frames[drawing->n_frames - 1];
    const size_t n_prefix = frame->n_prefix;
    const char *key = drawing->grouping->tensors[*i]->key;
    size_t end = grouping_end(drawing->grouping, *i, frame->end, n_prefix);
    if (key[n_prefix + grouping_component(key, n_prefix)] == '\0')
        end = *i + 1;
    const bool is_last = end == frame->end;
    print_indent(drawing, is_last);
    if (end - *i == 1) {
        print_tensor(drawing, (*i)++, n_prefix);
        return 0;
    }
    const size_t n_common = grouping_common_prefix(drawing->grouping, *i, end);
    print_name(drawing, key + n_prefix, n_common - n_prefix - 1);
    print_totals(drawing, *i, end);
    return push(drawing, (struct frame){end, n_common, is_last});
}

int drawing_print(FILE *out, struct grouping *grouping)
{
    struct drawing drawing = {.out = out, .grouping = grouping};
    grouping_sort(grouping);
    putc('.', out);
    print_totals(&drawing, 0, grouping->n_tensors);
    int result = push(&drawing, (struct frame){.end = grouping->n_tensors, .is_last = true});
    for (size_t i = 0; result == 0 && drawing.n_frames > 0 && !ferror(out);) {
        if (i == drawing.frames[drawing.n_frames - 1].end)
            drawing.n_frames--;
        else
            result = print_next(&drawing, &i);
    }
    free(drawing.frames);
    return result;
}
