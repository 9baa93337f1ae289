/* SPDX-License-Identifier: MIT */
/*
 * The value of a key of a dict. A small dict, or one of a graph without a lookup, is searched from
 * its end. A dict that has changed since its texts were collected is searched, too.
 */
#include "value/value.h"

#include <weightfs/array.h>

#include <stdlib.h>
#include <string.h>

enum { N_SMALL = 64 }; /* keys and values */

struct value_texts {
    uint32_t dict, n; /* of its items when they were collected */
    const uint32_t *items;
    struct map map; /* from a text key to its last place among the items */
};

static uint32_t search(const struct graph *graph, const struct value *value, const char *key)
{
    const uint32_t *items = value_items(value);
    for (uint32_t i = value->n; i >= 2; i -= 2)
        if (value_is_text(graph, items[i - 2], key))
            return items[i - 1];
    return 0;
}

struct query {
    const struct graph *graph;
    const struct value_texts *texts;
    const char *key;
    size_t n_key;
    uint32_t dict;
};

static bool is_key(const void *ctx, uint32_t i)
{
    const struct query *query = ctx;
    const struct value *text = graph_at(query->graph, query->texts->items[i]);
    return text->n == query->n_key && memcmp(text->text, query->key, query->n_key) == 0;
}

static bool find_place(const struct graph *graph, const struct value_texts *texts, const char *key,
                       size_t n_key, uint32_t *ret)
{
    const struct query query = {.graph = graph, .texts = texts, .key = key, .n_key = n_key};
    return map_find(&texts->map, hash_bytes(key, n_key, hash_seed()), is_key, &query, ret);
}

/* From the end: of equal keys, the last one counts. */
static int collect(const struct graph *graph, struct value_texts *texts)
{
    for (uint32_t i = texts->n; i >= 2; i -= 2) {
        const struct value *text = graph_at(graph, texts->items[i - 2]);
        uint32_t at;
        if (text->kind == VALUE_TEXT && !find_place(graph, texts, text->text, text->n, &at) &&
            map_add(&texts->map, hash_bytes(text->text, text->n, hash_seed()), i - 2) < 0)
            return -1;
    }
    return 0;
}

static bool is_dict(const void *ctx, uint32_t i)
{
    const struct query *query = ctx;
    return query->graph->lookup->dicts[i].dict == query->dict;
}

/* Returns NULL when out of memory. */
static struct value_texts *texts_of(const struct graph *graph, uint32_t dict)
{
    struct value_lookup *lookup = graph->lookup;
    const struct value *value = graph_at(graph, dict);
    const struct query query = {.graph = graph, .dict = dict};
    const uint64_t hash = hash_bytes(&dict, sizeof(dict), hash_seed());
    uint32_t i;
    if (map_find(&lookup->map, hash, is_dict, &query, &i))
        return &lookup->dicts[i];
    struct value_texts texts = {.dict = dict, .n = value->n, .items = value_items(value)};
    if (array_reserve(&lookup->dicts, sizeof(*lookup->dicts), lookup->n_dicts, 1, &lookup->n_room) <
            0 ||
        collect(graph, &texts) < 0 || map_add(&lookup->map, hash, lookup->n_dicts) < 0) {
        map_done(&texts.map);
        return NULL;
    }
    lookup->dicts[lookup->n_dicts] = texts;
    return &lookup->dicts[lookup->n_dicts++];
}

uint32_t value_get(const struct graph *graph, uint32_t dict, const char *key)
{
    if (dict == 0)
        return 0;
    const struct value *value = graph_at(graph, dict);
    if (value->kind == VALUE_CALL)
        return value_get(graph, value_part(graph, value, PART_ITEMS), key);
    if (value->kind != VALUE_DICT)
        return 0;
    const struct value_texts *texts =
        graph->lookup != NULL && value->n > N_SMALL ? texts_of(graph, dict) : NULL;
    if (texts == NULL || texts->n != value->n || texts->items != value_items(value))
        return search(graph, value, key);
    uint32_t i;
    return find_place(graph, texts, key, strlen(key), &i) ? texts->items[i + 1] : 0;
}

void value_lookup_done(struct value_lookup *lookup)
{
    for (uint32_t i = 0; i < lookup->n_dicts; i++)
        map_done(&lookup->dicts[i].map);
    free(lookup->dicts);
    map_done(&lookup->map);
    *lookup = (struct value_lookup){0};
}
