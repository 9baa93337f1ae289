/* SPDX-License-Identifier: MIT */
/*
 * Squarified: the parts of a frame are laid in rows along its shorter side, the largest first, and
 * a row ends where one more part would make its tiles longer. What is too small to be seen is one
 * tile with its number of tensors, so that the picture of any checkpoint is bounded.
 */
#include "cli/treemap.h"

#include "cli/input.h"
#include "program/print.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_WIDTH = 1200, /* units of the picture, about pixels */
    N_HEIGHT = 680,
    N_LEGEND = 28, /* height */
    N_DEPTH_MAX = 24,
    N_AREA_MIN = 50, /* of a tile */
    N_LETTER = 6,    /* width of a letter */
    N_LINE = 15,     /* height of a line of text */
};

/* ---- text ---- */

static void markup_text(struct strbuf *out, const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        switch (text[i]) {
        case '&':
            strbuf_puts(out, "&amp;");
            break;
        case '<':
            strbuf_puts(out, "&lt;");
            break;
        case '>':
            strbuf_puts(out, "&gt;");
            break;
        case '"':
            strbuf_puts(out, "&quot;");
            break;
        case '\'':
            strbuf_puts(out, "&#39;");
            break;
        default:
            strbuf_add(out, text + i, 1);
        }
    }
}

void markup_name(struct strbuf *out, const char *name)
{
    autostrbuf struct strbuf escaped = {0};
    strbuf_escape(&escaped, name, strlen(name));
    if (escaped.has_failed)
        strbuf_fail(out);
    else if (escaped.bytes != NULL)
        markup_text(out, escaped.bytes, escaped.n_bytes);
}

/* Adds what of a text has room in a width, and "…" for the rest. */
static void add_cut(struct strbuf *out, const struct strbuf *text, double width)
{
    static const char more[] = "\xe2\x80\xa6";
    const size_t n_room = width > 0 ? (size_t)(width / N_LETTER) : 0;
    size_t n = text->n_bytes;
    if (n > n_room)
        n = n_room > 0 ? n_room - 1 : 0;
    while (n > 0 && n < text->n_bytes && ((unsigned char)text->bytes[n] & 0xc0) == 0x80)
        n--;
    if (text->bytes != NULL)
        markup_text(out, text->bytes, n);
    if (n < text->n_bytes && n > 0)
        strbuf_puts(out, more);
}

/* ---- rows of tiles ---- */

struct box {
    double x, y, width, height;
};

struct part {
    struct key_run run;
    double n_elems; /* later the area */
};

static int by_size(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->n_elems != y->n_elems)
        return x->n_elems > y->n_elems ? -1 : 1;
    return (x->run.start > y->run.start) - (x->run.start < y->run.start);
}

/* Returns how many parts the next row has, along a side of that length; *ret_area is theirs. */
static size_t choose_row(const struct part *parts, size_t n, double side, double *ret_area)
{
    double worst = INFINITY;
    size_t i = 0;
    for (*ret_area = 0; i < n; i++) {
        const double area = *ret_area + parts[i].n_elems;
        const double share = area * area / (side * side);
        const double ratio = fmax(parts[0].n_elems / share, share / parts[i].n_elems);
        if (ratio > worst)
            break;
        worst = ratio;
        *ret_area = area;
    }
    return i;
}

/* Takes the box of a part from the row at the start of the box that is left. */
static struct box take_tile(const struct box *left, double thickness, double area, double *at)
{
    const double length = area / thickness;
    const struct box box = left->width >= left->height
                               ? (struct box){left->x, left->y + *at, thickness, length}
                               : (struct box){left->x + *at, left->y, length, thickness};
    *at += length;
    return box;
}

static void take_row(struct box *left, double thickness)
{
    if (left->width >= left->height) {
        left->x += thickness;
        left->width -= thickness;
    } else {
        left->y += thickness;
        left->height -= thickness;
    }
}

/* ---- tiles ---- */

struct drawing {
    const struct treemap *map;
    struct strbuf *out;
};

static void add_rect(struct strbuf *out, const struct box *box, const char *attributes)
{
    strbuf_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"%s/>", box->x,
                  box->y, fmax(box->width, 0.1), fmax(box->height, 0.1), attributes);
}

static void add_label(struct strbuf *out, const struct box *box, const struct strbuf *name)
{
    if (box->height < N_LINE || box->width < 5 * N_LETTER)
        return;
    strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\">", box->x + 4, box->y + N_LINE - 4);
    add_cut(out, name, box->width - N_LETTER);
    strbuf_puts(out, "</text>");
}

static void add_shape(struct strbuf *out, const struct wfs_tensor *tensor)
{
    strbuf_printf(out, "%s ", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    print_add_shape(out, &tensor->shape);
}

static void draw_tensor(const struct drawing *drawing, const struct key_run *run, size_t n_prefix,
                        const struct box *box)
{
    struct strbuf *out = drawing->out;
    const struct treemap *map = drawing->map;
    const struct wfs_tensor *tensor = map->tree->tensors[run->start];
    autostrbuf struct strbuf name = {0};
    key_tree_name(map->tree, run, n_prefix, &name);
    if (name.has_failed)
        strbuf_fail(out);
    strbuf_printf(out, "<g class=\"tile %s\" data-i=\"%zu\"><title>",
                  map->colour(map->ctx, run->start), run->start);
    markup_name(out, tensor->key);
    strbuf_puts(out, "\n");
    add_shape(out, tensor);
    strbuf_printf(out, "\n%s parameters", amount_of_count(input_n_elems(tensor)).text);
    if (map->describe != NULL)
        map->describe(map->ctx, run->start, out);
    strbuf_puts(out, "</title>");
    add_rect(out, box, "");
    add_label(out, box, &name);
    strbuf_puts(out, "</g>\n");
}

/* What is too small to be seen, from tensor `first` on. */
static void draw_rest(const struct drawing *drawing, size_t first, uint64_t n_tensors,
                      const struct box *box)
{
    struct strbuf *out = drawing->out;
    strbuf_printf(out, "<g class=\"tile %s\"><title>%s</title>",
                  drawing->map->colour(drawing->map->ctx, first),
                  wfs_count(n_tensors, "small tensor").text);
    add_rect(out, box, "");
    strbuf_puts(out, "</g>\n");
}

static void draw_parts(const struct drawing *drawing, const struct key_run *of, struct box box,
                       unsigned depth);

static void draw_frame(const struct drawing *drawing, const struct key_run *run, size_t n_prefix,
                       struct box box, unsigned depth)
{
    struct strbuf *out = drawing->out;
    const struct key_tree *tree = drawing->map->tree;
    const bool has_name = box.height > 3 * N_LINE && box.width > 8 * N_LETTER;
    const double edge = box.height > 12 && box.width > 12 ? 2 : 0;
    autostrbuf struct strbuf name = {0};
    key_tree_name(tree, run, n_prefix, &name);
    if (name.has_failed)
        strbuf_fail(out);
    strbuf_puts(out, "<g class=\"frame\">");
    add_rect(out, &box, "");
    if (has_name) {
        strbuf_printf(&name, "  %s",
                      amount_of_count(key_tree_n_elems(tree, run->start, run->end)).text);
        add_label(out, &box, &name);
    }
    strbuf_puts(out, "</g>\n");
    box.x += edge;
    box.width -= 2 * edge;
    box.y += has_name ? N_LINE : edge;
    box.height -= has_name ? N_LINE + edge : 2 * edge;
    draw_parts(drawing, run, box, depth + 1);
}

/* Collects the entries that have parameters. Returns how many, or -ENOMEM. */
static ssize_t collect(const struct key_tree *tree, const struct key_run *of, struct part **ret)
{
    size_t n = 0;
    struct part *parts = calloc(of->end - of->start + 1, sizeof(*parts));
    if (parts == NULL)
        return -ENOMEM;
    for (size_t i = of->start; i < of->end;) {
        const struct key_run run = key_tree_run(tree, i, of->end, of->n_prefix, false);
        const uint64_t n_elems = key_tree_n_elems(tree, run.start, run.end);
        if (n_elems > 0)
            parts[n++] = (struct part){run, (double)n_elems};
        i = run.end;
    }
    qsort(parts, n, sizeof(*parts), by_size);
    *ret = parts;
    return (ssize_t)n;
}

/* Makes areas of the sizes. Returns how many tiles can be seen; the others follow as one. */
static size_t scale(struct part *parts, size_t n, double area, uint64_t *ret_n_rest)
{
    double sum = 0;
    size_t n_seen = 0;
    *ret_n_rest = 0;
    for (size_t i = 0; i < n; i++)
        sum += parts[i].n_elems;
    for (size_t i = 0; i < n; i++) {
        parts[i].n_elems *= area / sum;
        n_seen += parts[i].n_elems >= N_AREA_MIN;
    }
    if (n_seen == n)
        return n;
    for (size_t i = n_seen; i < n; i++) {
        *ret_n_rest += parts[i].run.end - parts[i].run.start;
        if (i > n_seen)
            parts[n_seen].n_elems += parts[i].n_elems;
    }
    return n_seen + 1;
}

static void draw_parts(const struct drawing *drawing, const struct key_run *of, struct box box,
                       unsigned depth)
{
    autofree struct part *parts = NULL;
    uint64_t n_rest;
    const double area = fmax(box.width, 0) * fmax(box.height, 0);
    if (area < N_AREA_MIN || depth > N_DEPTH_MAX) {
        draw_rest(drawing, of->start, of->end - of->start, &box);
        return;
    }
    const ssize_t n_all = collect(drawing->map->tree, of, &parts);
    if (n_all < 0)
        strbuf_fail(drawing->out);
    if (n_all <= 0)
        return;
    const size_t n = scale(parts, (size_t)n_all, area, &n_rest);
    for (size_t i = 0, end; i < n; i = end) {
        double row, at = 0;
        const double side = fmax(fmin(box.width, box.height), 0.01);
        end = i + choose_row(parts + i, n - i, side, &row);
        for (; i < end; i++) {
            const struct key_run *run = &parts[i].run;
            const struct box tile = take_tile(&box, row / side, parts[i].n_elems, &at);
            if (n_rest > 0 && i + 1 == n)
                draw_rest(drawing, run->start, n_rest, &tile);
            else if (run->end - run->start == 1)
                draw_tensor(drawing, run, of->n_prefix, &tile);
            else
                draw_frame(drawing, run, of->n_prefix, tile, depth);
        }
        take_row(&box, row / side);
    }
}

/* ---- the picture ---- */

static void draw_legend(const struct treemap *map, struct strbuf *out)
{
    double x = 0;
    for (size_t i = 0; i < map->n_legend; i++) {
        const struct treemap_legend *legend = &map->legend[i];
        const struct box box = {x, 6, 14, 14};
        strbuf_printf(out, "<g class=\"%s\">", legend->colour);
        add_rect(out, &box, "");
        strbuf_printf(out, "</g><text class=\"legend\" x=\"%.1f\" y=\"17\">", x + 19);
        markup_text(out, legend->text, strlen(legend->text));
        strbuf_puts(out, "</text>\n");
        x += 36 + 7.0 * (double)strlen(legend->text);
    }
}

int treemap_draw(const struct treemap *map, struct strbuf *out)
{
    const struct drawing drawing = {map, out};
    const struct key_run all = {.start = 0, .end = map->tree->n_tensors};
    const struct box box = {0, N_LEGEND, N_WIDTH, N_HEIGHT};
    strbuf_printf(out,
                  "<svg class=\"wfs-map\" xmlns=\"http://www.w3.org/2000/svg\" "
                  "viewBox=\"0 0 %d %d\" role=\"img\" tabindex=\"0\" aria-label=\"",
                  N_WIDTH, N_HEIGHT + N_LEGEND);
    markup_text(out, map->label, strlen(map->label));
    strbuf_printf(out, "\">\n<style>%s</style>\n", report_map_css);
    draw_legend(map, out);
    draw_parts(&drawing, &all, box, 0);
    strbuf_puts(out, "</svg>\n");
    return out->has_failed ? -ENOMEM : 0;
}
