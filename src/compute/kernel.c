/* SPDX-License-Identifier: MIT */
/*
 * Four factors are taken at a time, for four rows where there are as many, so that what is loaded
 * and stored serves several of them; the parentheses keep the order of one at a time. Functions
 * with clones are static: clang gives others a name of their own.
 */
#include "compute/patch.h"

#include <string.h>

static inline double add_four(double sum, const double *left, double r0, double r1, double r2,
                              double r3)
{
    return (((sum + left[0] * r0) + left[1] * r1) + left[2] * r2) + left[3] * r3;
}

/* Adds the products of four rows, but for up to three factors at their end. */
CAST_CLONES static void multiply_four(const double *left, size_t n_rank, const double *right,
                                      size_t n_step, size_t n, double *restrict to, size_t n_to)
{
    double *to1 = to + n_to, *to2 = to1 + n_to, *to3 = to2 + n_to;
    for (size_t k = 0; k + 4 <= n_rank; k += 4) {
        const double *l0 = left + k, *l1 = l0 + n_rank, *l2 = l1 + n_rank, *l3 = l2 + n_rank;
        const double *r0 = right + k * n_step, *r1 = r0 + n_step, *r2 = r1 + n_step,
                     *r3 = r2 + n_step;
        for (size_t i = 0; i < n; i++) {
            const double v0 = add_four(to[i], l0, r0[i], r1[i], r2[i], r3[i]);
            const double v1 = add_four(to1[i], l1, r0[i], r1[i], r2[i], r3[i]);
            const double v2 = add_four(to2[i], l2, r0[i], r1[i], r2[i], r3[i]);
            const double v3 = add_four(to3[i], l3, r0[i], r1[i], r2[i], r3[i]);
            to[i] = v0;
            to1[i] = v1;
            to2[i] = v2;
            to3[i] = v3;
        }
    }
}

/* Adds those of one row, from factor k on. */
CAST_CLONES static void multiply_row(const double *left, size_t k, size_t n_rank,
                                     const double *right, size_t n_step, size_t n,
                                     double *restrict to)
{
    for (; k + 4 <= n_rank; k += 4) {
        const double *r0 = right + k * n_step, *r1 = r0 + n_step, *r2 = r1 + n_step,
                     *r3 = r2 + n_step;
        for (size_t i = 0; i < n; i++)
            to[i] = add_four(to[i], left + k, r0[i], r1[i], r2[i], r3[i]);
    }
    for (; k < n_rank; k++) {
        for (size_t i = 0; i < n; i++)
            to[i] = to[i] + left[k] * right[k * n_step + i];
    }
}

CAST_CLONES static void add(double *restrict to, double scale, const double *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = to[i] + scale * from[i];
}

CAST_CLONES static void towards(double *restrict to, double scale, const double *from,
                                const double *base, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = to[i] + scale * (from[i] - base[i]);
}

CAST_CLONES static void scale_all(double *to, double scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = to[i] * scale;
}

CAST_CLONES static void scale_single(float *to, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = to[i] * scale;
}

CAST_CLONES static void product(double *restrict to, const double *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = to[i] * from[i];
}

CAST_CLONES static void add_squares(double *restrict sums, const double *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sums[i] = sums[i] + from[i] * from[i];
}

CAST_CLONES static void round_all(double *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (double)(float)to[i];
}

void kernel_multiply(const double *left, size_t n_rows, size_t n_rank, const double *right,
                     size_t n_step, size_t n, double *to, size_t n_to)
{
    const size_t n_fours = n_rows / 4 * 4;
    for (size_t row = 0; row < n_rows; row++)
        memset(to + row * n_to, 0, n * sizeof(*to));
    for (size_t row = 0; row < n_fours; row += 4)
        multiply_four(left + row * n_rank, n_rank, right, n_step, n, to + row * n_to, n_to);
    for (size_t row = 0; row < n_rows; row++)
        multiply_row(left + row * n_rank, row < n_fours ? n_rank / 4 * 4 : 0, n_rank, right, n_step,
                     n, to + row * n_to);
}

void kernel_add(double *to, double scale, const double *from, size_t n)
{
    add(to, scale, from, n);
}

void kernel_towards(double *to, double scale, const double *from, const double *base, size_t n)
{
    towards(to, scale, from, base, n);
}

void kernel_scale(double *to, double scale, size_t n)
{
    scale_all(to, scale, n);
}

void kernel_scale_single(float *to, float scale, size_t n)
{
    scale_single(to, scale, n);
}

void kernel_round(double *to, size_t n)
{
    round_all(to, n);
}

void kernel_product(double *to, const double *from, size_t n)
{
    product(to, from, n);
}

void kernel_add_squares(double *sums, const double *from, size_t n)
{
    add_squares(sums, from, n);
}
