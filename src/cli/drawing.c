/* SPDX-License-Identifier: MIT */
/*
 * The tree is drawn from sorted keys without building it: a frame per open directory. A directory
 * that holds only one other thing shares its line with it, so the indents together are never longer
 * than the keys.
 */
#include "cli/outline.h"

#include "cli/input.h"
#include "cli/print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct frame {
    size_t end;      /* of the tensors in it */
    size_t n_prefix; /* bytes of key that lead to it */
    bool is_last;    /* nothing follows it in its parent */
};

struct outline {
    FILE *out;
    const struct grouping *grouping;
    struct frame *frames;
    size_t n_frames, n_room;
};

static int push(struct outline *outline, struct frame frame)
{
    if (outline->n_frames == outline->n_room) {
        const size_t n_room = 2 * outline->n_room + 8;
        struct frame *frames = reallocarray(outline->frames, n_room, sizeof(*frames));
        if (frames == NULL)
            return -ENOMEM;
        outline->frames = frames;
        outline->n_room = n_room;
    }
    outline->frames[outline->n_frames++] = frame;
    return 0;
}

static void print_indent(const struct outline *outline, bool is_last)
{
    for (size_t i = 1; i < outline->n_frames; i++)
        fputs(outline->frames[i].is_last ? "    " : "|   ", outline->out);
    fputs(is_last ? "`-- " : "|-- ", outline->out);
}

static void print_name(const struct outline *outline, const char *name, size_t n_bytes)
{
    if (n_bytes == 0)
        putc('%', outline->out);
    print_escaped_n(outline->out, name, n_bytes);
}

static void print_tensor(const struct outline *outline, size_t i, size_t n_prefix)
{
    const struct wfs_tensor *tensor = outline->grouping->tensors[i];
    const char *name = tensor->key + n_prefix;
    print_name(outline, name, strlen(name));
    fprintf(outline->out, "  %s ", wfs_dtype_name(tensor->dtype));
    print_shape(outline->out, &tensor->shape);
    fputs("  ", outline->out);
    print_size(outline->out, tensor->n_bytes);
    putc('\n', outline->out);
}

static void print_totals(const struct outline *outline, size_t i, size_t end)
{
    fprintf(outline->out, "  (%zu tensor%s, ", end - i, end - i == 1 ? "" : "s");
    print_size(outline->out, grouping_n_bytes(outline->grouping, i, end));
    fputs(")\n", outline->out);
}

/* One line: the tensor at *i, or the directory that it is in; *i moves to what is to be printed
 * next. */
static int print_next(struct outline *outline, size_t *i)
{
    const struct frame *frame = &outline->frames[outline->n_frames - 1];
    const size_t n_prefix = frame->n_prefix;
    const char *key = outline->grouping->tensors[*i]->key;
    size_t end = grouping_end(outline->grouping, *i, frame->end, n_prefix);
    if (key[n_prefix + grouping_component(key, n_prefix)] == '\0')
        end = *i + 1;
    const bool is_last = end == frame->end;
    print_indent(outline, is_last);
    if (end - *i == 1) {
        print_tensor(outline, (*i)++, n_prefix);
        return 0;
    }
    const size_t n_common = grouping_common_prefix(outline->grouping, *i, end);
    print_name(outline, key + n_prefix, n_common - n_prefix - 1);
    print_totals(outline, *i, end);
    return push(outline, (struct frame){end, n_common, is_last});
}

int outline_print(FILE *out, struct grouping *grouping)
{
    struct outline outline = {.out = out, .grouping = grouping};
    grouping_sort(grouping);
    putc('.', out);
    print_totals(&outline, 0, grouping->n_tensors);
    int result = push(&outline, (struct frame){.end = grouping->n_tensors, .is_last = true});
    for (size_t i = 0; result == 0 && outline.n_frames > 0 && !ferror(out);) {
        if (i == outline.frames[outline.n_frames - 1].end)
            outline.n_frames--;
        else
            result = print_next(&outline, &i);
    }
    free(outline.frames);
    return result;
}
