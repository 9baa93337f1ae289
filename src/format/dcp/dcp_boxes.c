/* SPDX-License-Identifier: MIT */
/*
 * Do the boxes fill the tensor? Most tensors are cut along one dimension, and boxes side by side
 * are seen at once. Others are taken apart: a region that one box covers is good, one that no box
 * reaches is a hole, one that two cover is an overlap; any other is divided where the fewest boxes
 * are cut. Boxes that are arranged to be cut again and again use up a budget of steps.
 */
#include "format/dcp/dcp_tensor.h"

#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/search.h"

enum { STEPS = 1 << 16, STEPS_PER_BOX = 64, MAX_DEPTH = 512 };

void dcp_print_numbers(struct strbuf *text, const int64_t *numbers, uint32_t rank)
{
    strbuf_puts(text, "[");
    for (uint32_t i = 0; i < rank; i++)
        strbuf_printf(text, "%s%" PRId64, i == 0 ? "" : ", ", numbers[i]);
    strbuf_puts(text, "]");
}

bool dcp_box_is_empty(const int64_t *sizes, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        if (sizes[i] == 0)
            return true;
    return false;
}

const char *dcp_tensor_measure(struct dcp_tensor *tensor)
{
    uint64_t n = tensor->n_elem;
    bool is_empty = false, fits = true;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        is_empty = is_empty || tensor->dims[i] == 0;
        fits = fits && checked_mul(n, tensor->dims[i], &n) && n <= INT64_MAX;
    }
    tensor->n_bytes = is_empty || !fits ? 0 : n;
    return fits || is_empty ? NULL : "its size is not below 2^63 bytes";
}

/* ---- order ---- */

static int compare_boxes(const int64_t *a, const int64_t *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* By their offsets, those with the same by their order. */
static int compare_parts(const void *a, const void *b, void *ctx)
{
    const struct dcp_part *x = a, *y = b;
    const int code = compare_boxes(x->box, y->box, *(const uint32_t *)ctx);
    return code != 0 ? code : x->item < y->item ? -1 : x->item > y->item;
}

static void sort_parts(struct dcp_tensor *tensor)
{
    uint32_t rank = tensor->rank;
    for (uint32_t i = 1; i < tensor->n_parts; i++) {
        if (compare_parts(&tensor->parts[i - 1], &tensor->parts[i], &rank) > 0) {
            qsort_r(tensor->parts, tensor->n_parts, sizeof(*tensor->parts), compare_parts, &rank);
            return;
        }
    }
}

/* Equal boxes with one item count once. Returns the first part that has the offsets of the one
 * before it; NULL: there is none. */
static const struct dcp_part *drop_twins(struct dcp_tensor *tensor)
{
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < tensor->n_parts; i++) {
        const struct dcp_part *part = &tensor->parts[i];
        const struct dcp_part *last = n_kept == 0 ? NULL : &tensor->parts[n_kept - 1];
        if (last != NULL && compare_boxes(last->box, part->box, tensor->rank) == 0) {
            if (last->item != part->item ||
                compare_boxes(last->box, part->box, 2 * tensor->rank) != 0)
                return part;
            continue;
        }
        memcpy(&tensor->parts[n_kept++], part, sizeof(*part));
    }
    tensor->n_parts = n_kept;
    return NULL;
}

static void set_reach(struct dcp_tensor *tensor)
{
    uint64_t reach = 0;
    for (uint32_t i = 0; i < tensor->n_parts && tensor->rank > 0; i++) {
        struct dcp_part *part = &tensor->parts[i];
        const uint64_t end = (uint64_t)(part->box[0] + part->box[tensor->rank]);
        reach = end > reach ? end : reach;
        part->reach = reach;
    }
}

uint32_t dcp_boxes_first(const struct dcp_tensor *tensor, uint64_t row)
{
    return tensor->rank == 0
               ? 0
               : (uint32_t)search_starts(tensor->parts, tensor->n_parts, sizeof(*tensor->parts),
                                         offsetof(struct dcp_part, reach), row);
}

/* ---- boxes side by side ---- */

static bool is_whole(const struct dcp_tensor *tensor, const int64_t *box, uint32_t i)
{
    return box[i] == 0 && (uint64_t)box[tensor->rank + i] == tensor->dims[i];
}

/* Returns whether the boxes are slices along one dimension, one behind the other to the end. */
static bool are_slices(const struct dcp_tensor *tensor)
{
    uint32_t along = 0;
    int64_t at = 0;
    if (tensor->n_parts == 0)
        return false;
    while (along < tensor->rank && is_whole(tensor, tensor->parts[0].box, along))
        along++;
    for (uint32_t i = 0; i < tensor->n_parts; i++) {
        const int64_t *box = tensor->parts[i].box;
        for (uint32_t d = 0; d < tensor->rank; d++)
            if (d != along && !is_whole(tensor, box, d))
                return false;
        if (along == tensor->rank)
            return tensor->n_parts == 1;
        if (box[along] != at)
            return false;
        at += box[tensor->rank + along];
    }
    return (uint64_t)at == tensor->dims[along];
}

/* ---- any boxes ---- */

struct cutting {
    const struct dcp_tensor *tensor;
    int64_t *region;  /* starts, then ends */
    int64_t *edges;   /* room for all edges of the boxes in one dimension */
    uint64_t n_steps; /* left: one for each box that is looked at, more with many dimensions */
    struct strbuf *text;
    int code;
};

enum where { APART, PARTLY, COVERS };

/* Where a box lies with regard to the region. */
static enum where locate(const struct cutting *c, const int64_t *box)
{
    const uint32_t rank = c->tensor->rank;
    enum where where = COVERS;
    for (uint32_t i = 0; i < rank; i++) {
        const int64_t end = box[i] + box[rank + i];
        if (box[i] >= c->region[rank + i] || end <= c->region[i])
            return APART;
        if (box[i] > c->region[i] || end < c->region[rank + i])
            where = PARTLY;
    }
    return where;
}

static int compare_edges(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Finds where to divide the region, which has an edge inside of it: at the middle one of the edges
 * in the dimension in which that cuts the fewest boxes. */
static void choose_cut(const struct cutting *c, const uint32_t *boxes, uint32_t n,
                       uint32_t *ret_axis, int64_t *ret_at)
{
    const uint32_t rank = c->tensor->rank;
    uint32_t n_least = UINT32_MAX;
    for (uint32_t axis = 0; axis < rank && n_least > 0; axis++) {
        const int64_t low = c->region[axis], high = c->region[rank + axis];
        size_t n_edges = 0;
        uint32_t n_cut = 0;
        for (uint32_t i = 0; i < n; i++) {
            const int64_t *box = c->tensor->parts[boxes[i]].box;
            const int64_t start = box[axis], end = start + box[rank + axis];
            if (start > low && start < high)
                c->edges[n_edges++] = start;
            if (end > low && end < high)
                c->edges[n_edges++] = end;
        }
        if (n_edges == 0)
            continue;
        qsort(c->edges, n_edges, sizeof(*c->edges), compare_edges);
        const int64_t at = c->edges[n_edges / 2];
        for (uint32_t i = 0; i < n; i++) {
            const int64_t *box = c->tensor->parts[boxes[i]].box;
            n_cut += box[axis] < at && box[axis] + box[rank + axis] > at;
        }
        if (n_cut < n_least) {
            n_least = n_cut;
            *ret_axis = axis;
            *ret_at = at;
        }
    }
}

static bool is_filled(struct cutting *c, const uint32_t *boxes, uint32_t n, unsigned depth);

/* Divides the region; boxes are those that reach into it and do not cover it. */
static bool are_halves_filled(struct cutting *c, const uint32_t *boxes, uint32_t n, unsigned depth)
{
    uint32_t axis = 0;
    int64_t at = 0;
    bool is_good = true;
    choose_cut(c, boxes, n, &axis, &at);
    int64_t *const edges[] = {&c->region[c->tensor->rank + axis], &c->region[axis]};
    for (size_t i = 0; i < 2 && is_good; i++) {
        const int64_t before = *edges[i];
        *edges[i] = at;
        is_good = is_filled(c, boxes, n, depth + 1);
        *edges[i] = before;
    }
    return is_good;
}

/* Returns whether each element of the region is in one of the boxes, and writes why not. */
static bool is_filled(struct cutting *c, const uint32_t *boxes, uint32_t n, unsigned depth)
{
    const uint32_t rank = c->tensor->rank;
    const uint64_t n_steps = (uint64_t)n * (1 + rank / 8);
    autofree uint32_t *inside = malloc(((size_t)n + 1) * sizeof(*inside));
    uint32_t n_inside = 0, n_covers = 0;
    if (inside == NULL || depth > MAX_DEPTH || c->n_steps < n_steps) {
        c->code = inside == NULL ? -ENOMEM : 0;
        strbuf_printf(c->text, "its %s are arranged in too complicated a way to be checked",
                      wfs_count(c->tensor->n_parts, "chunk").text);
        return false;
    }
    c->n_steps -= n_steps;
    for (uint32_t i = 0; i < n; i++) {
        const enum where where = locate(c, c->tensor->parts[boxes[i]].box);
        if (where == APART)
            continue;
        /* Those that cover it go to the front. */
        inside[n_inside++] = boxes[i];
        if (where == COVERS) {
            inside[n_inside - 1] = inside[n_covers];
            inside[n_covers++] = boxes[i];
        }
    }
    if (n_inside == 0) {
        strbuf_puts(c->text, "no chunk has its elements [");
        for (uint32_t i = 0; i < rank; i++)
            strbuf_printf(c->text, "%s%" PRId64 ":%" PRId64, i == 0 ? "" : ", ", c->region[i],
                          c->region[rank + i]);
        strbuf_puts(c->text, "]");
        return false;
    }
    if (n_covers > 0 && n_inside > 1) {
        strbuf_puts(c->text, "its chunks at ");
        dcp_print_numbers(c->text, c->tensor->parts[inside[0]].box, rank);
        strbuf_puts(c->text, " and ");
        dcp_print_numbers(c->text, c->tensor->parts[inside[1]].box, rank);
        strbuf_puts(c->text, " overlap");
        return false;
    }
    return n_covers == 1 || are_halves_filled(c, inside, n_inside, depth);
}

/* Returns whether the boxes fill the tensor; text says why not. */
static bool fill(const struct dcp_tensor *tensor, struct strbuf *text, int *ret_code)
{
    const uint32_t rank = tensor->rank, n = tensor->n_parts;
    autofree int64_t *region = calloc(2 * ((size_t)rank + 1), sizeof(*region));
    autofree int64_t *edges = malloc(2 * ((size_t)n + 1) * sizeof(*edges));
    autofree uint32_t *boxes = malloc(((size_t)n + 1) * sizeof(*boxes));
    if (region == NULL || edges == NULL || boxes == NULL) {
        *ret_code = -ENOMEM;
        return false;
    }
    for (uint32_t i = 0; i < rank; i++)
        region[rank + i] = (int64_t)tensor->dims[i];
    for (uint32_t i = 0; i < n; i++)
        boxes[i] = i;
    struct cutting cutting = {.tensor = tensor,
                              .region = region,
                              .edges = edges,
                              .n_steps = STEPS + (uint64_t)n * STEPS_PER_BOX,
                              .text = text};
    const bool is_good = is_filled(&cutting, boxes, n, 0);
    *ret_code = cutting.code;
    return is_good;
}

/* Checks each box by itself. */
static bool is_inside(const struct dcp_tensor *tensor, struct strbuf *text)
{
    for (uint32_t i = 0; i < tensor->n_parts; i++) {
        const int64_t *at = tensor->parts[i].box, *n = at + tensor->rank;
        for (uint32_t d = 0; d < tensor->rank; d++) {
            int64_t end;
            if (at[d] >= 0 && n[d] >= 0 && checked_add(at[d], n[d], &end) &&
                (uint64_t)end <= tensor->dims[d])
                continue;
            strbuf_puts(text, "its chunk at ");
            dcp_print_numbers(text, at, tensor->rank);
            strbuf_puts(text, " of ");
            dcp_print_numbers(text, n, tensor->rank);
            strbuf_puts(text, " lies outside of its shape ");
            dcp_print_numbers(text, (const int64_t *)tensor->dims, tensor->rank);
            return false;
        }
    }
    return true;
}

static bool are_good(struct dcp_tensor *tensor, struct strbuf *text, int *ret_code)
{
    if (!is_inside(tensor, text))
        return false;
    sort_parts(tensor);
    const struct dcp_part *twin = drop_twins(tensor);
    if (twin != NULL) {
        strbuf_puts(text, "it has two different chunks at ");
        dcp_print_numbers(text, twin->box, tensor->rank);
        return false;
    }
    set_reach(tensor);
    return are_slices(tensor) || fill(tensor, text, ret_code);
}

const char *dcp_boxes_check(struct dcp_tensor *tensor, struct arena *arena, int *ret_code)
{
    autostrbuf struct strbuf text = {.n_max = 400};
    *ret_code = 0;
    if (tensor->n_bytes == 0 || are_good(tensor, &text, ret_code))
        return NULL;
    const char *copy = text.bytes == NULL ? NULL : arena_copy(arena, text.bytes, text.n_bytes);
    if (copy == NULL)
        *ret_code = -ENOMEM;
    return copy;
}
