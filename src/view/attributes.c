/* SPDX-License-Identifier: MIT */
/*
 * Tensors that are attributes of others, or their parts. They have keys of their own, but belong to
 * a tensor: a rule that names the tensor alone takes them with it.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/pass.h"

const struct item *pass_base(const struct pass *pass, const struct item *item)
{
    return item->base == 0 ? NULL : &pass->report->items[item->base - 1];
}

/* Returns the place of the tensor that the item is an attribute of; 0: none. */
static uint32_t base_place(const struct pass *pass, const struct item *item)
{
    const uint32_t place = item->tensor.place;
    return place > pass->catalog->n_places ? 0 : catalog_tensor_around(pass->catalog, place);
}

int pass_attributes(struct pass *pass)
{
    const struct wfs_catalog *catalog = pass->catalog;
    struct item *items = pass->report->items;
    const size_t n_items = pass->report->n_items;
    for (size_t i = 0; i < n_items && !pass->has_attributes; i++)
        pass->has_attributes = base_place(pass, &items[i]) != 0;
    if (!pass->has_attributes)
        return 0;
    autofree uint32_t *numbers = calloc((size_t)catalog->n_places + 1, sizeof(*numbers));
    if (numbers == NULL)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < n_items; i++)
        if (items[i].tensor.place <= catalog->n_places)
            numbers[items[i].tensor.place] = (uint32_t)i + 1;
    numbers[0] = 0;
    for (size_t i = 0; i < n_items; i++)
        items[i].base = numbers[base_place(pass, &items[i])];
    return 0;
}

/* Renames an attribute whose tensor was renamed while its own key stayed. */
static int follow(struct pass *pass, struct item *item)
{
    const struct item *base = pass_base(pass, item);
    if (base == NULL || base->tensor.key == base->last_key || item->tensor.key != item->last_key)
        return 0;
    const size_t n_before = strlen(base->last_key);
    if (strncmp(item->last_key, base->last_key, n_before) != 0 || item->last_key[n_before] != '.')
        return 0;
    const char *key =
        arena_print(&pass->catalog->arena, "%s%s", base->tensor.key, item->last_key + n_before);
    return key == NULL ? wfs_fail_memory(pass->err)
                       : pass_rename(pass, item, key, "follows its tensor");
}

/* A tensor precedes its attributes, which can have attributes. */
int pass_follow(struct pass *pass)
{
    int code = 0;
    if (!pass->has_attributes)
        return 0;
    for_items(item, pass)
    {
        if (code == 0)
            code = follow(pass, item);
    }
    for (size_t i = 0; i < pass->report->n_items; i++)
        pass->report->items[i].last_key = pass->report->items[i].tensor.key;
    return code;
}
