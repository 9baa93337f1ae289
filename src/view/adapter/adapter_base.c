/* SPDX-License-Identifier: MIT */
/*
 * The keys of the base by their texts, and the computation of each tensor.
 */
#include "view/adapter/adapter_base.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "catalog/catalog.h"

int adapter_base_grow(struct adapter_base *base)
{
    const size_t n_before = base->n_room, n = base->catalog->n_tensors;
    size_t n_room = n_before;
    if (n <= n_before)
        return 0;
    if (array_reserve(&base->tensor_of, sizeof(*base->tensor_of), n_before, n - n_before,
                      &base->n_room) < 0 ||
        array_reserve(&base->computed, sizeof(*base->computed), n_before, n - n_before, &n_room) <
            0)
        return -ENOMEM;
    base->n_room = n_room < base->n_room ? n_room : base->n_room;
    memset(base->computed + n_before, 0, (n_room - n_before) * sizeof(*base->computed));
    return 0;
}

const char *adapter_find_embedding(const struct wfs_catalog *catalog)
{
    static const char *const names[] = {"embed_tokens.weight", "wte.weight", "embed_in.weight",
                                        "word_embeddings.weight"};
    const char *found = NULL;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const char *key = catalog->tensors[i].key;
        const size_t n = strlen(key);
        for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
            const size_t n_name = strlen(names[k]);
            if (n < n_name || strcmp(key + n - n_name, names[k]) != 0)
                continue;
            if (found != NULL)
                return NULL;
            found = key;
        }
    }
    return found;
}

bool adapter_is_head(const char *key)
{
    static const char head[] = "lm_head.weight";
    const size_t n = strlen(key), n_head = strlen(head);
    return n >= n_head && strcmp(key + n - n_head, head) == 0 &&
           (n == n_head || key[n - n_head - 1] == '.');
}

int adapter_base_init(struct adapter_base *base, struct wfs_catalog *catalog)
{
    *base = (struct adapter_base){.catalog = catalog};
    if (adapter_base_grow(base) < 0 || text_index_reserve(&base->keys, catalog->n_tensors) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const char *key = catalog->tensors[i].key;
        const size_t n_before = base->keys.n_texts;
        uint32_t id;
        if (text_index_add(&base->keys, key, strlen(key), &id) < 0)
            return -ENOMEM;
        if (id == n_before)
            base->tensor_of[id] = (uint32_t)i;
    }
    base->embedding = adapter_find_embedding(catalog);
    return 0;
}

void adapter_base_done(struct adapter_base *base)
{
    text_index_done(&base->keys);
    free(base->tensor_of);
    free(base->computed);
}
