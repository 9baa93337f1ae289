/* SPDX-License-Identifier: MIT */
/*
 * Growing arrays.
 */
#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

int array_grow(void *array, size_t item_bytes, size_t n_items, size_t *n_room)
{
    enum { N_FIRST = 4, LARGE = 512 }; /* of large items often no second one comes */
    void *items;
    size_t n_bytes;
    if (n_items > UINT32_MAX)
        return -ENOMEM;
    size_t n = *n_room > UINT32_MAX / 2 ? UINT32_MAX : *n_room * 2;
    n = n < n_items ? n_items : n;
    n = n < N_FIRST && item_bytes < LARGE ? N_FIRST : n;
    /* The pointer is of another type than void *: it is copied, not looked at. */
    memcpy(&items, array, sizeof(items));
    if (!checked_mul(n, item_bytes, &n_bytes))
        return -ENOMEM;
    items = realloc(items, n_bytes);
    if (items == NULL)
        return -ENOMEM;
    memcpy(array, &items, sizeof(items));
    *n_room = n;
    return 0;
}
