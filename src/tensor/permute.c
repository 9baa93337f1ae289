/* SPDX-License-Identifier: MIT */
/*
 * Two axes matter: the one with the shortest step in the output, and the one with the shortest step
 * in the input. Over these two the elements are moved in strips, so that every cache line that is
 * touched on either side is used up while it is at hand; the others are counted through.
 */
#include "tensor/permute.h"

#include <stdbool.h>
#include <string.h>

#define always_inline static inline __attribute__((always_inline))

enum { STRIP = 16 }; /* output neighbours in one strip: a cache line of F32 */

always_inline void move_elem(char *out, const char *in, size_t n_elem)
{
    memcpy(out, in, n_elem);
}

/* A strip of n neighbours in the output, for every index of the input's fastest axis. */
always_inline void move_strip(const struct axis *fast_in, const struct axis *fast_out, uint64_t n,
                              size_t n_elem, const char *in, char *out)
{
    for (uint64_t i = 0; i < fast_in->n; i++) {
        for (uint64_t j = 0; j < n; j++)
            move_elem(out + j * fast_out->out, in + j * fast_out->in, n_elem);
        in += fast_in->in;
        out += fast_in->out;
    }
}

always_inline void move_plane(const struct axis *fast_in, const struct axis *fast_out,
                              size_t n_elem, const char *in, char *out)
{
    uint64_t j = 0;
    const struct axis dense = {fast_out->n, fast_out->in, n_elem};
    for (; fast_out->out == n_elem && j + STRIP <= fast_out->n; j += STRIP)
        move_strip(fast_in, &dense, STRIP, n_elem, in + j * fast_out->in, out + j * n_elem);
    for (; j < fast_out->n; j += STRIP) {
        const uint64_t n = fast_out->n - j < STRIP ? fast_out->n - j : STRIP;
        move_strip(fast_in, fast_out, n, n_elem, in + j * fast_out->in, out + j * fast_out->out);
    }
}

static void move_elems(const struct axis *fast_in, const struct axis *fast_out, size_t n_elem,
                       const char *in, char *out)
{
    switch (n_elem) {
    case 1:
        move_plane(fast_in, fast_out, 1, in, out);
        break;
    case 2:
        move_plane(fast_in, fast_out, 2, in, out);
        break;
    case 4:
        move_plane(fast_in, fast_out, 4, in, out);
        break;
    case 8:
        move_plane(fast_in, fast_out, 8, in, out);
        break;
    default:
        move_plane(fast_in, fast_out, n_elem, in, out);
    }
}

/* Runs that are dense on both sides are copied whole. */
static void move_runs(const struct axis *outer, const struct axis *run, size_t n_elem,
                      const char *in, char *out)
{
    const bool is_dense = run->in == n_elem && run->out == n_elem;
    for (uint64_t i = 0; i < outer->n; i++) {
        if (is_dense)
            memcpy(out, in, run->n * n_elem);
        for (uint64_t j = 0; j < run->n && !is_dense; j++)
            move_elem(out + j * run->out, in + j * run->in, n_elem);
        in += outer->in;
        out += outer->out;
    }
}

static struct axis take(struct axis *axes, uint32_t *n_axes, uint32_t i)
{
    const struct axis axis = axes[i];
    axes[i] = axes[--*n_axes];
    return axis;
}

/* Of the axes that move at all on that side, the one with the shortest step. */
static uint32_t shortest(const struct axis *axes, uint32_t n_axes, bool in_output)
{
    uint32_t best = 0;
    uint64_t best_step = UINT64_MAX;
    for (uint32_t i = 0; i < n_axes; i++) {
        const uint64_t step = in_output ? axes[i].out : axes[i].in;
        if (step != 0 && step < best_step) {
            best = i;
            best_step = step;
        }
    }
    return best;
}

/* The next index of the outer axes; false after the last, with everything back at the start. */
static bool step(const struct axis *axes, uint32_t n_axes, uint64_t *index, const char **in,
                 char **out)
{
    for (uint32_t i = 0; i < n_axes; i++) {
        if (++index[i] < axes[i].n) {
            *in += axes[i].in;
            *out += axes[i].out;
            return true;
        }
        *in -= (axes[i].n - 1) * axes[i].in;
        *out -= (axes[i].n - 1) * axes[i].out;
        index[i] = 0;
    }
    return false;
}

void permute(const struct axis *axes, uint32_t n_axes, size_t n_elem, const char *in, char *out)
{
    struct axis outer[PERMUTE_MAX_AXES];
    uint64_t index[PERMUTE_MAX_AXES] = {0};
    uint32_t n_outer = n_axes;
    struct axis fast_out = {1, 0, n_elem}, fast_in = {1, 0, 0};
    memcpy(outer, axes, n_axes * sizeof(*axes));
    bool is_run = true;
    if (n_outer > 0) {
        const uint32_t in_output = shortest(outer, n_outer, true);
        is_run = shortest(outer, n_outer, false) == in_output;
        fast_out = take(outer, &n_outer, in_output);
    }
    if (n_outer > 0)
        fast_in = take(outer, &n_outer, shortest(outer, n_outer, false));
    do {
        if (is_run)
            move_runs(&fast_in, &fast_out, n_elem, in, out);
        else
            move_elems(&fast_in, &fast_out, n_elem, in, out);
    } while (step(outer, n_outer, index, &in, &out));
}
