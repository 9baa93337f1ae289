/* SPDX-License-Identifier: MIT */
/*
 * What was made of a value is made once, however often the value is used.
 */
#ifndef WFS_TORCH_CACHE_H
#define WFS_TORCH_CACHE_H

#include "format/pytorch/object/torch.h"

struct torch_cache_entry {
    uint32_t id;
    bool is_good; /* false: it could not be made */
    union {
        struct value_bytes bytes;
        struct torch_storage storage;
    };
};

/* NULL: not made yet. */
struct torch_cache_entry *torch_cache_find(const struct torch *torch, uint32_t id);

/* A new entry, valid until the next one; NULL when out of memory. */
struct torch_cache_entry *torch_cache_add(struct torch *torch, uint32_t id);

void torch_cache_done(struct torch *torch);

#endif
