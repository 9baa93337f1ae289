/* SPDX-License-Identifier: MIT */
/*
 * A hash map of the names in use.
 */
#include "format/core/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wanted {
    const struct name_slot *slots;
    const char *name;
    size_t n_bytes;
};

static bool is_wanted(const void *ctx, uint32_t i)
{
    const struct wanted *wanted = ctx;
    const struct name_slot *slot = &wanted->slots[i];
    return slot->n_bytes == wanted->n_bytes &&
           (slot->n_bytes == 0 || memcmp(slot->name, wanted->name, slot->n_bytes) == 0);
}

static struct name_slot *find_slot(const struct names *names, const char *name, size_t n_bytes)
{
    const struct wanted wanted = {names->slots, name, n_bytes};
    uint32_t i;
    return map_find(&names->map, hash_bytes(name, n_bytes, hash_seed()), is_wanted, &wanted, &i)
               ? &names->slots[i]
               : NULL;
}

int names_reserve(struct names *names, uint32_t n)
{
    if (n <= names->n_room)
        return 0;
    struct name_slot *slots = reallocarray(names->slots, n, sizeof(*slots));
    if (slots == NULL)
        return -ENOMEM;
    names->slots = slots;
    names->n_room = n;
    return map_reserve(&names->map, n);
}

static int add_slot(struct names *names, const char *name, size_t n_bytes)
{
    if (n_bytes > UINT32_MAX ||
        (names->n_slots == names->n_room &&
         names_reserve(names, names->n_room < 64 ? 64 : names->n_room / 2 * 3) < 0))
        return -ENOMEM;
    if (map_add(&names->map, hash_bytes(name, n_bytes, hash_seed()), names->n_slots) < 0)
        return -ENOMEM;
    names->slots[names->n_slots++] = (struct name_slot){name, (uint32_t)n_bytes, 1};
    return 0;
}

int names_make(struct names *names, struct arena *arena, const char *name, size_t n_bytes,
               const char *lasting, const char **ret)
{
    const char *from = name == NULL ? "" : name;
    struct name_slot *slot = find_slot(names, from, n_bytes);
    if (slot == NULL) {
        *ret = lasting != NULL ? lasting : arena_copy(arena, from, n_bytes);
        return *ret == NULL ? -ENOMEM : add_slot(names, *ret, n_bytes);
    }
    char *copy = arena_chars(arena, n_bytes + 16);
    if (copy == NULL)
        return -ENOMEM;
    memcpy(copy, from, n_bytes);
    size_t n_all;
    do {
        n_all = n_bytes + (size_t)snprintf(copy + n_bytes, 16, "~%u", ++slot->n_same);
    } while (find_slot(names, copy, n_all) != NULL);
    names->n_clashes++;
    *ret = copy;
    return add_slot(names, copy, n_all);
}

void names_done(struct names *names)
{
    free(names->slots);
    map_done(&names->map);
    *names = (struct names){.n_clashes = names->n_clashes};
}
