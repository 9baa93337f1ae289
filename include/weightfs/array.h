/* SPDX-License-Identifier: MIT */
/*
 * Growing arrays in malloc'ed memory. Shared by library and programs, not installed.
 */
#ifndef WFS_ARRAY_H
#define WFS_ARRAY_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Makes room for n_items in all, at least doubling what there is. array is the address of the
 * pointer to the first item, n_room counts items. An array has fewer than 2^32 items, so that they
 * can be numbered with 32 bits. -ENOMEM: the array is as it was.
 */
int array_grow(void *array, size_t item_bytes, size_t n_items, size_t *n_room);

/* Makes room for n_more items behind the first n_items, where there is none yet. -ENOMEM. */
static inline int array_reserve(void *array, size_t item_bytes, size_t n_items, size_t n_more,
                                size_t *n_room)
{
    if (n_items <= *n_room && n_more <= *n_room - n_items)
        return 0;
    return n_more > UINT32_MAX ? -ENOMEM : array_grow(array, item_bytes, n_items + n_more, n_room);
}

#endif
