/* SPDX-License-Identifier: MIT */
/*
 * Four factors are taken at a time, so that a sum is loaded and stored once for four of them; the
 * parentheses keep the order of one at a time. Functions with clones are static: clang gives others
 * a name of their own.
 */
#include "compute/patch.h"

#include <string.h>

CAST_CLONES static void multiply(const double *left, size_t n_rank, const double *right,
                                 size_t n_step, size_t n, double *restrict to)
{
    memset(to, 0, n * sizeof(*to));
    size_t k = 0;
    for (; k + 4 <= n_rank; k += 4) {
        const double l0 = left[k], l1 = left[k + 1], l2 = left[k + 2], l3 = left[k + 3];
        const double *r0 = right + k * n_step, *r1 = r0 + n_step, *r2 = r1 + n_step,
                     *r3 = r2 + n_step;
        for (size_t i = 0; i < n; i++)
            to[i] = (((to[i] + l0 * r0[i]) + l1 * r1[i]) + l2 * r2[i]) + l3 * r3[i];
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

void kernel_multiply(const double *left, size_t n_rank, const double *right, size_t n_step,
                     size_t n, double *to)
{
    multiply(left, n_rank, right, n_step, n, to);
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
