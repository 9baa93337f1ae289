/* SPDX-License-Identifier: MIT */
/*
 * Elements in memory, moved from one order of dimensions to another.
 */
#ifndef WFS_PERMUTE_H
#define WFS_PERMUTE_H

#include <stddef.h>
#include <stdint.h>

enum { PERMUTE_MAX_AXES = 64 };

/* n indices (not 0), and the bytes from one to the next on either side. */
struct axis {
    uint64_t n;
    uint64_t in, out;
};

/* Copies elements; at most PERMUTE_MAX_AXES axes, in any order. in and out do not overlap; nothing
 * needs to be aligned. */
void permute(const struct axis *axes, uint32_t n_axes, size_t n_elem, const char *in, char *out);

#endif
