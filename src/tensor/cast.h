/* SPDX-License-Identifier: MIT */
/*
 * Elements of one number type as elements of another, bit for bit as torch does it on a CPU: what
 * becomes a float narrower than F32 goes through F32, rounding is to nearest even, integers wrap
 * among themselves. Where torch leaves the result to the processor (a float that the integer type
 * cannot hold) the value saturates and NaN is 0.
 */
#ifndef WFS_CAST_H
#define WFS_CAST_H

#include <weightfs/tensor.h>

/* Returns whether both are numbers of whole bytes: BOOL, plain integers, floats from 8 bits on. */
bool cast_is_possible(enum wfs_dtype from, enum wfs_dtype to);

/* Converts elements, little-endian on both sides. in and out do not overlap; neither needs to be
 * aligned. */
void cast_elems(enum wfs_dtype from, const void *in, enum wfs_dtype to, void *out, size_t n_elems);

/* Converts elements of F64 with one rounding, to nearest even; cast_elems goes through F32. */
void cast_once(const void *in, enum wfs_dtype to, void *out, size_t n_elems);

/* Adds what the cast of these elements loses to the counts: finite values that come out as
 * something else than themselves rounded, and NaN that went in. */
void cast_count(enum wfs_dtype from, const void *in, enum wfs_dtype to, size_t n_elems,
                uint64_t *n_overflow, uint64_t *n_nan);

#endif
