/* SPDX-License-Identifier: MIT */
/*
 * Questions about one item.
 */
#include "view/item.h"

#include <string.h>

const char *item_drop_name(const struct item *item)
{
    static const char *const names[] = {
        [DROP_NONE] = "",
        [DROP_TOP_LEVEL_KEY] = "top_level_key",
        [DROP_FILTER] = "filter",
        [DROP_UNREADABLE] = "cannot be read",
        [DROP_SHAPE] = "shape mismatch",
        [DROP_DTYPE] = "dtype mismatch",
        [DROP_UNUSED] = "not in like",
    };
    return names[item->drop];
}

bool item_is_renamed(const struct item *item)
{
    return strcmp(item->tensor.key, item->source_key) != 0;
}

bool item_is_cast(const struct item *item)
{
    return item->tensor.dtype != item->tensor.stored.dtype;
}

bool item_is_guessed(const struct item *item)
{
    return item->done != ACTION_NONE && item->verdict.certainty == LIKELY;
}

bool item_is_undecided(const struct item *item)
{
    return item->verdict.row != ROW_NONE && item->verdict.certainty == UNDECIDED;
}

bool item_is_rigid(const struct item *item)
{
    const struct wfs_tensor *tensor = &item->tensor;
    return tensor->dtype == WFS_OPAQUE || wfs_dtype_bits((enum wfs_dtype)tensor->dtype) % 8 != 0 ||
           wfs_dtype_bits((enum wfs_dtype)tensor->stored.dtype) % 8 != 0;
}

const char *item_leaf(const struct item *item)
{
    const char *dot = strrchr(item->tensor.key, '.');
    return dot == NULL ? item->tensor.key : dot + 1;
}

size_t item_path_bytes(const struct item *item)
{
    return (size_t)(item_leaf(item) - item->tensor.key);
}
