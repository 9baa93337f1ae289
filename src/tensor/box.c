/* SPDX-License-Identifier: MIT */
/*
 * Axes are sorted by their step in the file. The first ones, as long as the gaps between their runs
 * are cheaper to read than to jump over, make a chunk: one read. Chunks are cast when they arrive.
 * If the axis with the shortest step in the output is not part of the chunk, many chunks along it
 * make a tile, small enough for the cache, from which the elements are moved to their places.
 */
#include "tensor/box.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum {
    TILE = 1 << 18, /* bytes of a tile, and of a chunk, on either side of the cast */
    NARROW = 4096,  /* bytes of a chunk that is one of many in a tile */
    SPARSE = 2048,  /* a gap of this many bytes costs as much as another read */
    CACHE_LINE =
        64, /* chunks in a tile are as many, or twice ..., apart by an odd number of them */
};

struct tiling {
    const struct source *source;
    const struct recipe *recipe;
    struct axis axes[PERMUTE_MAX_AXES]; /* shortest step in the file first */
    uint64_t extent[PERMUTE_MAX_AXES];  /* indices of each axis in a full tile */
    uint32_t n_axes;
    uint32_t n_chunk; /* leading axes that are read in one piece */
    uint32_t across;  /* axis along which chunks make a tile; n_axes: one chunk is a tile */
    size_t n_row;     /* bytes from chunk to chunk in the tile */
    size_t n_span;    /* bytes of a full chunk in the file */
    bool is_direct;   /* a chunk is one run on both sides: no tile */
    char *tile, *raw; /* raw: a chunk as stored, where it is to be cast */
};

static void sort_axes(struct tiling *t)
{
    for (uint32_t i = 1; i < t->n_axes; i++) {
        const struct axis axis = t->axes[i];
        uint32_t j = i;
        for (; j > 0 && t->axes[j - 1].in > axis.in; j--)
            t->axes[j] = t->axes[j - 1];
        t->axes[j] = axis;
    }
}

/* Takes axes into the chunk, up to that many bytes and not including `before`, while it is cheap.
 */
static void plan_chunk(struct tiling *t, uint64_t n_most, uint32_t before)
{
    uint64_t span = t->recipe->n_in;
    t->n_chunk = 0;
    for (uint32_t i = 0; i < t->n_axes; i++)
        t->extent[i] = 1;
    for (uint32_t i = 0; i < before && t->axes[i].in <= span + SPARSE; i++) {
        const struct axis *axis = &t->axes[i];
        const uint64_t n_fit = axis->in == 0 ? axis->n : (n_most - span) / axis->in + 1;
        t->extent[i] = axis->n < n_fit ? axis->n : n_fit;
        span += (t->extent[i] - 1) * axis->in;
        t->n_chunk = i + 1;
        if (t->extent[i] < axis->n)
            break;
    }
    t->n_span = (size_t)span;
}

/* The axis with the shortest step in the output. */
static uint32_t fastest_axis(const struct tiling *t)
{
    uint32_t fastest = 0;
    for (uint32_t i = 1; i < t->n_axes; i++) {
        if (t->axes[i].out < t->axes[fastest].out)
            fastest = i;
    }
    return fastest;
}

static void plan_row(struct tiling *t)
{
    const size_t n_chunk = t->n_span / t->recipe->n_in * t->recipe->n_out;
    const size_t n_lines = (n_chunk + CACHE_LINE - 1) / CACHE_LINE;
    t->n_row = (n_lines | 1) * CACHE_LINE;
}

static void plan_tile(struct tiling *t)
{
    const struct recipe *recipe = t->recipe;
    const uint32_t fastest = fastest_axis(t);
    const uint64_t scale = recipe->n_out > recipe->n_in ? recipe->n_out / recipe->n_in : 1;
    plan_chunk(t, TILE / scale, t->n_axes);
    t->across = t->n_axes;
    t->is_direct = t->n_axes == 0 || (t->n_chunk == 1 && t->axes[0].in == recipe->n_in &&
                                      t->axes[0].out == recipe->n_out);
    if (t->is_direct && t->n_axes > 0 && recipe_is_verbatim(recipe)) {
        t->extent[0] = t->axes[0].n;
        t->n_span = t->axes[0].n * recipe->n_in;
    }
    if (!t->is_direct && (fastest >= t->n_chunk || t->extent[fastest] < t->axes[fastest].n)) {
        plan_chunk(t, NARROW / scale, fastest);
        plan_row(t);
        const uint64_t n_fit = (TILE / t->n_row + CACHE_LINE) / CACHE_LINE * CACHE_LINE;
        t->across = fastest;
        t->extent[fastest] = t->axes[fastest].n < n_fit ? t->axes[fastest].n : n_fit;
    }
    plan_row(t);
}

/* A chunk of span bytes at offset, as shown, to `to`. */
static int fetch(const struct tiling *t, uint64_t offset, size_t span, char *to)
{
    char *at = t->raw != NULL ? t->raw : to;
    const int code = source_read_unchecked(t->source, offset, at, span);
    if (code < 0)
        return code;
    if (!recipe_is_verbatim(t->recipe))
        recipe_apply(t->recipe, at, span / t->recipe->n_in, to);
    return 0;
}

static int read_tile(const struct tiling *t, const uint64_t *extent, uint64_t offset, char *out)
{
    const size_t n_in = t->recipe->n_in, n_out = t->recipe->n_out;
    struct axis axes[PERMUTE_MAX_AXES];
    uint32_t n_axes = 0;
    uint64_t span = n_in;
    for (uint32_t i = 0; i < t->n_chunk; i++) {
        const struct axis *axis = &t->axes[i];
        span += (extent[i] - 1) * axis->in;
        axes[n_axes++] = (struct axis){extent[i], axis->in / n_in * n_out, axis->out};
    }
    if (t->is_direct)
        return fetch(t, offset, (size_t)span, out);
    uint64_t n_chunks = 1, step = 0;
    if (t->across < t->n_axes) {
        n_chunks = extent[t->across];
        step = t->axes[t->across].in;
        axes[n_axes++] = (struct axis){n_chunks, t->n_row, t->axes[t->across].out};
    }
    for (uint64_t i = 0; i < n_chunks; i++) {
        const int code = fetch(t, offset + i * step, (size_t)span, t->tile + i * t->n_row);
        if (code < 0)
            return code;
    }
    permute(axes, n_axes, n_out, t->tile, out);
    return 0;
}

/* All tiles, the axes counted through in steps of their extent. */
static int read_tiles(const struct tiling *t, uint64_t offset, char *out)
{
    uint64_t first[PERMUTE_MAX_AXES] = {0}, extent[PERMUTE_MAX_AXES];
    for (;;) {
        for (uint32_t i = 0; i < t->n_axes; i++) {
            const uint64_t n_left = t->axes[i].n - first[i];
            extent[i] = n_left < t->extent[i] ? n_left : t->extent[i];
        }
        const int code = read_tile(t, extent, offset, out);
        if (code < 0)
            return code;
        uint32_t i = 0;
        for (; i < t->n_axes; i++) {
            const struct axis *axis = &t->axes[i];
            if (axis->n - first[i] > t->extent[i]) {
                first[i] += t->extent[i];
                offset += t->extent[i] * axis->in;
                out += t->extent[i] * axis->out;
                break;
            }
            offset -= first[i] * axis->in;
            out -= first[i] * axis->out;
            first[i] = 0;
        }
        if (i == t->n_axes)
            return 0;
    }
}

static struct tiling plan(const struct source *source, const struct recipe *recipe,
                          const struct box *box)
{
    struct tiling t = {.source = source, .recipe = recipe, .n_axes = box->n_axes};
    memcpy(t.axes, box->axes, box->n_axes * sizeof(*box->axes));
    sort_axes(&t);
    plan_tile(&t);
    return t;
}

uint64_t box_cost(const struct recipe *recipe, const struct box *box)
{
    const struct tiling t = plan(NULL, recipe, box);
    uint64_t cost = t.n_span + SPARSE;
    for (uint32_t i = 0; i < t.n_axes; i++) {
        const uint64_t n_each = i < t.n_chunk ? t.extent[i] : 1, n_left = t.axes[i].n % n_each;
        const uint64_t n_full = cost;
        if (!checked_mul(cost, t.axes[i].n / n_each, &cost) ||
            (n_left > 0 && !checked_add(cost, n_full - (n_each - n_left) * t.axes[i].in, &cost)))
            return UINT64_MAX;
    }
    return cost;
}

int box_read(const struct source *source, const struct recipe *recipe, const struct box *box,
             uint64_t offset, char *out)
{
    struct tiling t = plan(source, recipe, box);
    const uint64_t n_chunks = t.across < t.n_axes ? t.extent[t.across] : 1;
    autofree char *tile = t.is_direct ? NULL : malloc(n_chunks * t.n_row);
    autofree char *raw = recipe->from == recipe->to ? NULL : malloc(t.n_span);
    t.tile = tile;
    t.raw = raw;
    if ((!t.is_direct && tile == NULL) || (recipe->from != recipe->to && raw == NULL))
        return -ENOMEM;
    return read_tiles(&t, offset, out);
}
