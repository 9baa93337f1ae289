/* SPDX-License-Identifier: MIT */
/*
 * The loops over doubles, which become vector code. Each element gets the same operations in the
 * same order however the arrays are cut.
 */
#ifndef WFS_KERNEL_H
#define WFS_KERNEL_H

#include <stddef.h>

/* to[i] = left[0] * right[0][i] + left[1] * right[1][i] ..., from left to right; the rows of right
 * begin n_step apart. */
void kernel_multiply(const double *left, size_t n_rank, const double *right, size_t n_step,
                     size_t n, double *to);

/* to[i] += scale * from[i] */
void kernel_add(double *to, double scale, const double *from, size_t n);

/* to[i] += scale * (from[i] - base[i]) */
void kernel_towards(double *to, double scale, const double *from, const double *base, size_t n);

/* to[i] *= scale */
void kernel_scale(double *to, double scale, size_t n);

/* The same in single precision: what the product of two such numbers in double precision is
 * rounded to. */
void kernel_scale_single(float *to, float scale, size_t n);

/* Rounds each to F32. */
void kernel_round(double *to, size_t n);

/* to[i] *= from[i] */
void kernel_product(double *to, const double *from, size_t n);

/* sums[i] += from[i]^2 */
void kernel_add_squares(double *sums, const double *from, size_t n);

#endif
