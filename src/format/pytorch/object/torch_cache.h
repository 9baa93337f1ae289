/* SPDX-License-Identifier: MIT */
/*
 * Results that are computed once for a value, however often it is used.
 */
#ifndef WFS_TORCH_CACHE_H
#define WFS_TORCH_CACHE_H

#include "format/pytorch/object/torch.h"

struct torch_cache_entry {
    uint32_t id;
    bool is_good; /* false: the value has no such result */
    union {
        struct value_bytes bytes;
        struct torch_storage storage;
    };
};

/* Returns the entry of a value; NULL: none yet. */
struct torch_cache_entry *torch_cache_find(const struct torch *torch, uint32_t id);

/* Adds an entry, valid until the next one. NULL when out of memory. */
struct torch_cache_entry *torch_cache_add(struct torch *torch, uint32_t id);

void torch_cache_done(struct torch *torch);

#endif
