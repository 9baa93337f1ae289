/* SPDX-License-Identifier: MIT */
/*
 * The keys of the base by their texts, and the computation of each tensor.
 */
#include "view/adapter/adapter_base.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

int adapter_base_grow(struct adapter_base *base)
{
    const size_t n_before = base->n_computed, n = base->catalog->n_tensors;
    if (n > n_before && array_reserve(&base->computed, sizeof(*base->computed), n_before,
                                      n - n_before, &base->n_computed) < 0)
        return -ENOMEM;
    if (base->n_computed > n_before)
        memset(base->computed + n_before, 0,
               (base->n_computed - n_before) * sizeof(*base->computed));
    const int code = catalog_keys_add(&base->keys, base->catalog, base->n_keyed);
    base->n_keyed = n;
    return code;
}

int adapter_base_add(struct adapter_base *base, size_t i, bool is_batch,
                     const struct compute_step *step, const char *text, const char *change)
{
    struct wfs_tensor *tensor = &base->catalog->tensors[i];
    if (base->computed[i] == NULL) {
        struct source *made;
        if (compute_new(tensor, is_batch, &made) < 0 || catalog_adopt_made(base->catalog, made) < 0)
            return -ENOMEM;
        base->computed[i] = made;
        compute_show(tensor, made);
    }
    if (compute_add(base->computed[i], step, text) < 0)
        return -ENOMEM;
    if (change == NULL)
        return 0;
    tensor->changes = tensor->changes == NULL
                          ? change
                          : arena_print(&base->catalog->arena, "%s; %s", tensor->changes, change);
    return tensor->changes == NULL ? -ENOMEM : 0;
}

const char *adapter_find_embedding(const struct wfs_catalog *catalog)
{
    static const char *const names[] = {"embed_tokens.weight", "wte.weight", "embed_in.weight",
                                        "word_embeddings.weight"};
    const char *found = NULL;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const char *key = catalog->tensors[i].key;
        for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
            if (strcmp(key, names[k]) != 0 && !text_ends(key, names[k]))
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
    return strcmp(key, "lm_head.weight") == 0 || text_ends(key, ".lm_head.weight");
}

int adapter_base_init(struct adapter_base *base, struct wfs_catalog *catalog)
{
    *base = (struct adapter_base){.catalog = catalog};
    base->embedding = adapter_find_embedding(catalog);
    return adapter_base_grow(base);
}

void adapter_base_done(struct adapter_base *base)
{
    catalog_keys_done(&base->keys);
    free(base->computed);
}
