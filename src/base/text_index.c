/* SPDX-License-Identifier: MIT */
/*
 * Texts in an array, found by a map of their hashes.
 */
#include "base/text_index.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lookup {
    const struct text_slice *texts;
    struct text_slice text;
};

static bool is_same(const void *ctx, uint32_t id)
{
    const struct lookup *lookup = ctx;
    const struct text_slice *text = &lookup->texts[id];
    return text->n_bytes == lookup->text.n_bytes &&
           (text->n_bytes == 0 || memcmp(text->bytes, lookup->text.bytes, text->n_bytes) == 0);
}

static uint32_t find(const struct text_index *index, struct text_slice text, uint64_t hash)
{
    const struct lookup lookup = {index->texts, text};
    uint32_t id;
    return map_find(&index->map, hash, is_same, &lookup, &id) ? id : TEXT_INDEX_NONE;
}

uint32_t text_index_find(const struct text_index *index, const char *bytes, size_t n_bytes)
{
    const struct text_slice text = {bytes, n_bytes};
    return find(index, text, hash_bytes(bytes, n_bytes, hash_seed()));
}

int text_index_add(struct text_index *index, const char *bytes, size_t n_bytes, uint32_t *ret)
{
    const struct text_slice text = {bytes, n_bytes};
    const uint64_t hash = hash_bytes(bytes, n_bytes, hash_seed());
    *ret = find(index, text, hash);
    if (*ret != TEXT_INDEX_NONE)
        return 0;
    if (array_reserve(&index->texts, sizeof(text), index->n_texts, 1, &index->n_room) < 0 ||
        map_add(&index->map, hash, (uint32_t)index->n_texts) < 0)
        return -ENOMEM;
    index->texts[index->n_texts] = text;
    *ret = (uint32_t)index->n_texts++;
    return 0;
}

int text_index_reserve(struct text_index *index, size_t n)
{
    if (array_reserve(&index->texts, sizeof(*index->texts), 0, n, &index->n_room) < 0)
        return -ENOMEM;
    return map_reserve(&index->map, (uint32_t)n);
}

void text_index_done(struct text_index *index)
{
    map_done(&index->map);
    free(index->texts);
    *index = (struct text_index){0};
}
