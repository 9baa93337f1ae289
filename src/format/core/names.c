/* SPDX-License-Identifier: MIT */
/*
 * A hash map of the names in use.
 */
#include "format/core/names.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int names_reserve(struct names *names, uint32_t n)
{
    if (array_reserve(&names->n_same, sizeof(*names->n_same), 0, n, &names->n_room) < 0)
        return -ENOMEM;
    return text_index_reserve(&names->index, n);
}

/* Counts the name as asked for once more; *ret_is_new: it was not in use. */
static int count(struct names *names, const char *name, size_t n_bytes, uint32_t *ret,
                 bool *ret_is_new)
{
    const size_t n_before = names->index.n_texts;
    if (array_reserve(&names->n_same, sizeof(*names->n_same), n_before, 1, &names->n_room) < 0 ||
        text_index_add(&names->index, name, n_bytes, ret) < 0)
        return -ENOMEM;
    *ret_is_new = names->index.n_texts > n_before;
    if (*ret_is_new)
        names->n_same[*ret] = 1;
    return 0;
}

int names_make(struct names *names, struct arena *arena, const char *name, size_t n_bytes,
               const char *lasting, const char **ret)
{
    const char *from = name == NULL ? "" : name;
    uint32_t first, number;
    bool is_new;
    if (count(names, from, n_bytes, &first, &is_new) < 0)
        return -ENOMEM;
    if (is_new) {
        *ret = lasting != NULL ? lasting : arena_copy(arena, from, n_bytes);
        names->index.texts[first].bytes = *ret == NULL ? "" : *ret;
        return *ret == NULL ? -ENOMEM : 0;
    }
    char *copy = arena_chars(arena, n_bytes + 16);
    if (copy == NULL)
        return -ENOMEM;
    memcpy(copy, from, n_bytes);
    do {
        const size_t n_all =
            n_bytes + (size_t)snprintf(copy + n_bytes, 16, "~%u", ++names->n_same[first]);
        if (count(names, copy, n_all, &number, &is_new) < 0)
            return -ENOMEM;
    } while (!is_new);
    names->n_clashes++;
    *ret = copy;
    return 0;
}

void names_done(struct names *names)
{
    free(names->n_same);
    text_index_done(&names->index);
    *names = (struct names){.n_clashes = names->n_clashes};
}
