/* SPDX-License-Identifier: MIT */
/*
 * Texts in an array, found by a map.
 */
#include "view/evidence/intern.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lookup {
    const struct intern *intern;
    struct intern_text text;
};

static bool is_same(const void *ctx, uint32_t id)
{
    const struct lookup *lookup = ctx;
    const struct intern_text *text = &lookup->intern->texts[id];
    return text->n_bytes == lookup->text.n_bytes &&
           memcmp(text->bytes, lookup->text.bytes, text->n_bytes) == 0;
}

uint32_t intern_find(const struct intern *intern, const char *bytes, size_t n_bytes)
{
    uint32_t id;
    const struct lookup lookup = {intern, {bytes, n_bytes}};
    const uint64_t hash = hash_bytes(bytes, n_bytes, hash_seed());
    return map_find(&intern->map, hash, is_same, &lookup, &id) ? id : UINT32_MAX;
}

int intern_add(struct intern *intern, const char *bytes, size_t n_bytes, uint32_t *ret)
{
    *ret = intern_find(intern, bytes, n_bytes);
    if (*ret != UINT32_MAX)
        return 0;
    if (array_reserve(&intern->texts, sizeof(*intern->texts), intern->n_texts, 1, &intern->n_room) <
        0)
        return -ENOMEM;
    if (map_add(&intern->map, hash_bytes(bytes, n_bytes, hash_seed()), intern->n_texts) < 0)
        return -ENOMEM;
    intern->texts[intern->n_texts] = (struct intern_text){bytes, n_bytes};
    *ret = intern->n_texts++;
    return 0;
}

void intern_done(struct intern *intern)
{
    map_done(&intern->map);
    free(intern->texts);
    *intern = (struct intern){0};
}
