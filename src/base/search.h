/* SPDX-License-Identifier: MIT */
/*
 * Looking in items that are sorted by where they begin.
 */
#ifndef WFS_SEARCH_H
#define WFS_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/*
 * Returns how many of n items of n_bytes each begin at or before the offset: the last of them is
 * the one that the offset can lie in. An item keeps its beginning, a uint64_t, `at` bytes from its
 * own.
 */
static inline size_t search_starts(const void *items, size_t n, size_t n_bytes, size_t at,
                                   uint64_t offset)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const void *start = (const char *)items + middle * n_bytes + at;
        if (*(const uint64_t *)start <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
