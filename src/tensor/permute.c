/* SPDX-License-Identifier: MIT */
/*
 * Two axes matter: the one with the shortest step in the output, and the one with the shortest step
 * in the input. Over these two the elements are moved in strips, so that every cache line that is
 * touched on either side is used up while it is at hand; the others are counted through. Where both
 * are dense, square blocks are turned in registers.
 */
#include "tensor/gather.h"

#include <stdbool.h>
#include <string.h>

#define always_inline static inline __attribute__((always_inline))

enum {
    STRIP = 16,      /* output neighbours in one strip: a cache line of F32 */
    CACHE_LINE = 64, /* bytes of a strip of blocks */
    REGISTER = 16,   /* bytes, and the most rows of a block */
};

typedef uint8_t bytes __attribute__((vector_size(REGISTER)));

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

/* The elements of a and b in turn: those of their first halves, those of their second halves. */
always_inline void interleave(bytes a, bytes b, size_t n_elem, bytes *low, bytes *high)
{
    switch (n_elem) {
    case 1:
        *low =
            __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        *high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                                        15, 31);
        break;
    case 2:
        *low =
            __builtin_shufflevector(a, b, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
        *high = __builtin_shufflevector(a, b, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15,
                                        30, 31);
        break;
    case 4:
        *low =
            __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        *high = __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29,
                                        30, 31);
        break;
    default:
        *low =
            __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        *high = __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29,
                                        30, 31);
    }
}

/* A square block whose rows fill a register. Each round brings together what is half of the rows
 * apart; after as many rounds as double 1 to their number, columns are rows. */
always_inline void turn_block(const char *in, size_t in_step, char *out, size_t out_step,
                              size_t n_elem)
{
    const size_t n = REGISTER / n_elem;
    bytes rows[REGISTER], mixed[REGISTER];
#pragma GCC unroll 16
    for (size_t i = 0; i < n; i++)
        memcpy(&rows[i], in + i * in_step, REGISTER);
#pragma GCC unroll 4
    for (size_t round = 1; round < n; round *= 2) {
#pragma GCC unroll 8
        for (size_t i = 0; i < n / 2; i++)
            interleave(rows[i], rows[i + n / 2], n_elem, &mixed[2 * i], &mixed[2 * i + 1]);
        memcpy(rows, mixed, n * REGISTER);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * out_step, &rows[i], REGISTER);
}

/* As move_strip, of a cache line of neighbours that are dense, as the indices of fast_in are on the
 * other side. */
always_inline void turn_strip(const struct axis *fast_in, const struct axis *fast_out,
                              size_t n_elem, const char *in, char *out)
{
    const size_t n_block = REGISTER / n_elem, n_strip = CACHE_LINE / n_elem;
    char lines[REGISTER * CACHE_LINE];
    uint64_t i = 0;
    for (; i + n_block <= fast_in->n; i += n_block) {
        for (size_t j = 0; j < n_strip; j += n_block)
            turn_block(in + i * n_elem + j * fast_out->in, fast_out->in, lines + j * n_elem,
                       CACHE_LINE, n_elem);
        for (size_t k = 0; k < n_block; k++)
            memcpy(out + (i + k) * fast_in->out, lines + k * CACHE_LINE, CACHE_LINE);
    }
    const struct axis rest = {fast_in->n - i, n_elem, fast_in->out};
    move_strip(&rest, fast_out, n_strip, n_elem, in + i * n_elem, out + i * fast_in->out);
}

always_inline void move_plane(const struct axis *fast_in, const struct axis *fast_out,
                              size_t n_elem, const char *in, char *out)
{
    uint64_t j = 0;
    const struct axis dense = {fast_out->n, fast_out->in, n_elem};
    const bool is_dense = fast_out->out == n_elem;
    const uint64_t n_line = CACHE_LINE / n_elem;
    const bool has_blocks = is_dense && fast_in->in == n_elem && n_elem < REGISTER;
    for (; has_blocks && j + n_line <= fast_out->n; j += n_line)
        turn_strip(fast_in, &dense, n_elem, in + j * fast_out->in, out + j * n_elem);
    for (; is_dense && j + STRIP <= fast_out->n; j += STRIP)
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
        move_plane(fast_in, fast_out, 16, in, out);
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
