/* SPDX-License-Identifier: MIT */
/*
 * The graph of values: building it and looking into it. Up to two items of a container lie in the
 * value itself, which is what most shapes and strides are.
 */
#include "value/value.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

enum { CELL_BLOCK = 16384, MAX_KEY_DEPTH = 2, MAX_KEY_ITEMS = 16 };

static int grow_chunks(struct graph *graph)
{
    if (graph->n_chunks == graph->n_chunk_room) {
        const uint32_t n_room = graph->n_chunk_room == 0 ? 16 : graph->n_chunk_room * 2;
        struct value **chunks = arena_calloc(graph->arena, n_room, sizeof(struct value *));
        if (chunks == NULL)
            return -ENOMEM;
        if (graph->n_chunks > 0)
            memcpy(chunks, graph->chunks, graph->n_chunks * sizeof(*chunks));
        graph->chunks = chunks;
        graph->n_chunk_room = n_room;
    }
    /* The first chunk of a small pickle need not be a large one, but all are alike. What a fork
     * passes over is a value too, none. */
    struct value *chunk = arena_calloc(graph->arena, GRAPH_CHUNK, sizeof(struct value));
    if (chunk == NULL)
        return -ENOMEM;
    graph->chunks[graph->n_chunks++] = chunk;
    return 0;
}

void graph_fork(struct graph *to, const struct graph *from, struct arena *arena)
{
    *to = *from;
    to->arena = arena;
    to->lookup = NULL;
    to->n_chunk_room = from->n_chunks; /* the next one makes a list of its own */
    to->n_values = from->n_chunks * GRAPH_CHUNK;
    to->cells = NULL;
    to->n_cells = 0;
}

/* NULL when out of memory. */
struct value *graph_own(struct graph *graph, uint32_t id, uint8_t *owned, uint32_t n_owned)
{
    const uint32_t i = (id - 1) / GRAPH_CHUNK;
    if (i < n_owned && !owned[i]) {
        struct value **chunks = arena_calloc(graph->arena, graph->n_chunk_room, sizeof(*chunks));
        struct value *chunk = arena_alloc(graph->arena, GRAPH_CHUNK * sizeof(struct value));
        if (chunks == NULL || chunk == NULL)
            return NULL;
        memcpy(chunk, graph->chunks[i], GRAPH_CHUNK * sizeof(struct value));
        memcpy(chunks, graph->chunks, graph->n_chunks * sizeof(*chunks));
        chunks[i] = chunk;
        graph->chunks = chunks;
        owned[i] = 1;
    }
    return graph_at(graph, id);
}

uint32_t value_new(struct graph *graph, enum value_kind kind)
{
    if (graph->n_values == UINT32_MAX - 1 ||
        (graph->n_values == (uint64_t)graph->n_chunks * GRAPH_CHUNK && grow_chunks(graph) < 0))
        return 0;
    const uint32_t id = ++graph->n_values;
    *graph_at(graph, id) = (struct value){.kind = (uint8_t)kind};
    return id;
}

uint32_t value_new_integer(struct graph *graph, int64_t integer)
{
    const uint32_t id = value_new(graph, VALUE_INT);
    if (id != 0)
        graph_at(graph, id)->integer = integer;
    return id;
}

uint32_t value_new_text(struct graph *graph, const char *text, size_t n_bytes)
{
    const char *copy = n_bytes > UINT32_MAX ? NULL : arena_copy(graph->arena, text, n_bytes);
    const uint32_t id = copy == NULL ? 0 : value_new(graph, VALUE_TEXT);
    if (id == 0)
        return 0;
    struct value *value = graph_at(graph, id);
    value->text = copy;
    value->n = (uint32_t)n_bytes;
    return id;
}

uint32_t value_new_bytes(struct graph *graph, const struct source *source, uint64_t offset,
                         uint64_t n_bytes)
{
    struct value_bytes *bytes = arena_alloc(graph->arena, sizeof(*bytes));
    const uint32_t id = bytes == NULL ? 0 : value_new(graph, VALUE_BYTES);
    if (id == 0)
        return 0;
    *bytes = (struct value_bytes){source, offset, n_bytes};
    graph_at(graph, id)->bytes = bytes;
    return id;
}

uint32_t value_new_global(struct graph *graph, const char *module, size_t n_module,
                          const char *name, size_t n_name)
{
    struct value_global *global = arena_alloc(graph->arena, sizeof(*global));
    const uint32_t id = global == NULL || n_module > UINT32_MAX || n_name > UINT32_MAX
                            ? 0
                            : value_new(graph, VALUE_GLOBAL);
    if (id == 0)
        return 0;
    global->module = arena_copy(graph->arena, module, n_module);
    global->name = arena_copy(graph->arena, name, n_name);
    if (global->module == NULL || global->name == NULL)
        return 0;
    global->n_module = (uint32_t)n_module;
    global->n_name = (uint32_t)n_name;
    graph_at(graph, id)->global = global;
    return id;
}

/* Room for n ids: a piece of the current block, or memory of its own. */
static uint32_t *cells_new(struct graph *graph, uint32_t n)
{
    if (n > CELL_BLOCK / 4)
        return arena_alloc(graph->arena, (size_t)n * sizeof(uint32_t));
    if (n > graph->n_cells) {
        uint32_t *block = arena_alloc(graph->arena, CELL_BLOCK * sizeof(uint32_t));
        if (block == NULL)
            return NULL;
        graph->cells = block;
        graph->n_cells = CELL_BLOCK;
    }
    uint32_t *cells = graph->cells;
    graph->cells += n;
    graph->n_cells -= n;
    return cells;
}

/* Room that a container of n items made by appending has: two in place, then powers of two. */
static uint64_t room_of(uint32_t n)
{
    if (n <= 2)
        return 2;
    return n <= 4 ? 4 : (uint64_t)1 << (32 - __builtin_clz(n - 1));
}

uint32_t value_new_items(struct graph *graph, enum value_kind kind, const uint32_t *items,
                         uint32_t n)
{
    const uint64_t n_room = kind == VALUE_TUPLE ? n : room_of(n);
    if (n_room > UINT32_MAX / 2)
        return 0;
    uint32_t *cells = n <= 2 ? NULL : cells_new(graph, (uint32_t)n_room);
    const uint32_t id = n > 2 && cells == NULL ? 0 : value_new(graph, kind);
    if (id == 0)
        return 0;
    struct value *value = graph_at(graph, id);
    value->n = n;
    if (n > 2)
        value->items = cells;
    if (n > 0)
        memcpy(n > 2 ? cells : value->pair, items, n * sizeof(uint32_t));
    return id;
}

uint32_t value_new_call(struct graph *graph, enum value_form form, uint32_t callable, uint32_t args)
{
    const uint32_t id = value_new(graph, VALUE_CALL);
    if (id == 0)
        return 0;
    struct value *value = graph_at(graph, id);
    value->form = (uint8_t)form;
    value->call.callable = callable;
    value->call.args = args;
    return id;
}

int value_append(struct graph *graph, uint32_t id, const uint32_t *items, uint32_t n)
{
    struct value *value = graph_at(graph, id);
    uint32_t n_all;
    if (n == 0)
        return 0;
    if (!checked_add(value->n, n, &n_all) || n_all > UINT32_MAX / 2)
        return -EOVERFLOW;
    const uint64_t n_room = room_of(n_all);
    uint32_t *cells = value->n <= 2 ? value->pair : value->items;
    if (n_room != room_of(value->n)) {
        cells = cells_new(graph, (uint32_t)n_room);
        if (cells == NULL)
            return -ENOMEM;
        memcpy(cells, value_items(value), value->n * sizeof(uint32_t));
    }
    memcpy(cells + value->n, items, n * sizeof(uint32_t));
    if (n_all > 2)
        value->items = cells;
    value->n = n_all;
    return 0;
}

static uint32_t *part_of(struct value *parts, enum value_part part)
{
    switch (part) {
    case PART_STATES:
        return &parts->n;
    case PART_ITEMS:
        return &parts->parts.items;
    default:
        return &parts->parts.elements;
    }
}

int value_append_part(struct graph *graph, uint32_t id, enum value_part part, const uint32_t *items,
                      uint32_t n)
{
    if (graph_at(graph, id)->n == 0) {
        const uint32_t parts = value_new(graph, VALUE_PARTS);
        if (parts == 0)
            return -ENOMEM;
        graph_at(graph, id)->n = parts;
    }
    uint32_t *list = part_of(graph_at(graph, graph_at(graph, id)->n), part);
    if (*list == 0)
        *list = value_new(graph, part == PART_ITEMS ? VALUE_DICT : VALUE_LIST);
    return *list == 0 ? -ENOMEM : value_append(graph, *list, items, n);
}

uint32_t value_part(const struct graph *graph, const struct value *call, enum value_part part)
{
    return call->kind != VALUE_CALL || call->n == 0 ? 0 : *part_of(graph_at(graph, call->n), part);
}

bool value_is_text(const struct graph *graph, uint32_t id, const char *text)
{
    if (id == 0)
        return false;
    const struct value *value = graph_at(graph, id);
    return value->kind == VALUE_TEXT && value->n == strlen(text) &&
           memcmp(value->text, text, value->n) == 0;
}

static uint32_t nth_of(const uint32_t *ids, uint32_t n, uint32_t i)
{
    for (uint32_t k = 0; k < n; k++)
        if (ids[k] != 0 && i-- == 0)
            return ids[k];
    return 0;
}

uint32_t value_child(const struct graph *graph, uint32_t id, uint32_t i)
{
    const struct value *value = graph_at(graph, id);
    if (value_has_items(value))
        return i < value->n ? value_items(value)[i] : 0;
    if (value->kind == VALUE_PERSISTENT)
        return i == 0 ? value->id : 0;
    if (value->kind == VALUE_CALL) {
        const uint32_t ids[] = {value->call.callable, value->call.args, value->n};
        return nth_of(ids, 3, i);
    }
    if (value->kind == VALUE_PARTS) {
        const uint32_t ids[] = {value->n, value->parts.items, value->parts.elements};
        return nth_of(ids, 3, i);
    }
    return 0;
}

static bool is_number(const struct value *value)
{
    return value->kind == VALUE_BOOL || value->kind == VALUE_INT || value->kind == VALUE_FLOAT;
}

/* The integer that a number equals; false when it equals none. */
static bool as_integer(const struct value *value, int64_t *ret)
{
    if (value->kind == VALUE_FLOAT) {
        if (!(value->real >= -9223372036854775808.0 && value->real < 9223372036854775808.0) ||
            value->real != (double)(int64_t)value->real)
            return false;
        *ret = (int64_t)value->real;
    } else {
        *ret = value->integer;
    }
    return true;
}

static bool is_same_number(const struct value *a, const struct value *b)
{
    int64_t x, y;
    const bool is_integer = as_integer(a, &x);
    if (is_integer != as_integer(b, &y))
        return false;
    return is_integer ? x == y : a->real == b->real;
}

/* Tuples as keys are looked into only this far, so that shared ones cannot blow up. */
static bool is_simple_tuple(const struct value *value, unsigned depth)
{
    return value->kind == VALUE_TUPLE && value->n <= MAX_KEY_ITEMS && depth < MAX_KEY_DEPTH;
}

static bool is_same(const struct graph *graph, uint32_t a, uint32_t b, unsigned depth)
{
    if (a == b)
        return true;
    const struct value *x = graph_at(graph, a), *y = graph_at(graph, b);
    if (is_number(x) && is_number(y))
        return is_same_number(x, y);
    if (x->kind != y->kind || x->n != y->n)
        return false;
    switch (x->kind) {
    case VALUE_NONE:
        return true;
    case VALUE_TEXT:
    case VALUE_BIG:
        return memcmp(x->text, y->text, x->n) == 0;
    case VALUE_GLOBAL:
        return x->global->n_module == y->global->n_module &&
               x->global->n_name == y->global->n_name &&
               memcmp(x->global->module, y->global->module, x->global->n_module) == 0 &&
               memcmp(x->global->name, y->global->name, x->global->n_name) == 0;
    case VALUE_TUPLE:
        if (!is_simple_tuple(x, depth))
            return false;
        for (uint32_t i = 0; i < x->n; i++)
            if (!is_same(graph, value_items(x)[i], value_items(y)[i], depth + 1))
                return false;
        return true;
    default:
        return false;
    }
}

bool value_is_same_key(const struct graph *graph, uint32_t a, uint32_t b)
{
    return is_same(graph, a, b, 0);
}

/* A long text can be in many keys: its ends and its length have to do. */
static uint64_t hash_text(const char *text, uint32_t n, uint64_t seed)
{
    enum { N_END = 2048 };
    return n <= 2 * N_END ? hash_bytes(text, n, seed)
                          : hash_bytes(text + n - N_END, N_END, hash_bytes(text, N_END, seed + n));
}

/* Equal keys hash alike, and no others: NaN is equal to itself only. */
static uint64_t hash_key(const struct graph *graph, uint32_t id, unsigned depth, uint64_t seed)
{
    const struct value *value = graph_at(graph, id);
    int64_t integer;
    if (value->kind == VALUE_TEXT || value->kind == VALUE_BIG)
        return hash_text(value->text, value->n, seed);
    if (value->kind == VALUE_NONE)
        return seed;
    if (is_number(value))
        return as_integer(value, &integer) ? hash_bytes(&integer, sizeof(integer), seed)
               : isnan(value->real)        ? hash_bytes(&id, sizeof(id), seed)
                                           : hash_bytes(&value->real, sizeof(value->real), seed);
    if (value->kind == VALUE_GLOBAL)
        return hash_bytes(value->global->name, value->global->n_name,
                          hash_bytes(value->global->module, value->global->n_module, seed));
    if (!is_simple_tuple(value, depth))
        return hash_bytes(&id, sizeof(id), seed);
    uint64_t hash = seed + value->n;
    for (uint32_t i = 0; i < value->n; i++)
        hash = hash_key(graph, value_items(value)[i], depth + 1, hash);
    return hash;
}

struct twin {
    const struct graph *graph;
    const uint32_t *items;
    uint32_t key;
};

static bool is_twin(const void *ctx, uint32_t pair)
{
    const struct twin *twin = ctx;
    return value_is_same_key(twin->graph, twin->items[2 * pair], twin->key);
}

int64_t value_drop_twins(struct graph *graph, uint32_t dict)
{
    struct value *value = graph_at(graph, dict);
    uint32_t *items = value->n <= 2 ? value->pair : value->items;
    const uint32_t n_pairs = value->n / 2;
    struct map map = {0};
    uint32_t n_kept = 0;
    if (n_pairs < 2)
        return 0;
    if (map_reserve(&map, n_pairs) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < n_pairs; i++) {
        const struct twin twin = {graph, items, items[2 * i]};
        const uint64_t hash = hash_key(graph, twin.key, 0, hash_seed());
        uint32_t first = n_kept;
        if (!map_find(&map, hash, is_twin, &twin, &first)) {
            (void)map_add(&map, hash, n_kept); /* there is room */
            items[2 * n_kept] = twin.key;
            n_kept++;
        }
        items[2 * first + 1] = items[2 * i + 1];
    }
    map_done(&map);
    if (n_kept == n_pairs)
        return 0;
    if (value->n > 2 && 2 * n_kept <= 2)
        memcpy(value->pair, (uint32_t[2]){items[0], items[1]}, sizeof(value->pair));
    value->n = 2 * n_kept;
    return n_pairs - n_kept;
}

/* ---- sets of keys ---- */

static bool is_in_set(const void *ctx, uint32_t i)
{
    const struct twin *twin = ctx;
    return value_is_same_key(twin->graph, twin->items[i], twin->key);
}

int value_set_init(struct value_set *set, const struct graph *graph, const struct value *items)
{
    *set = (struct value_set){.graph = graph, .items = value_items(items)};
    if (map_reserve(&set->map, items->n) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < items->n; i++) {
        if (!value_set_has(set, set->items[i]))
            (void)map_add(&set->map, hash_key(graph, set->items[i], 0, hash_seed()), i);
    }
    return 0;
}

bool value_set_has(const struct value_set *set, uint32_t key)
{
    const struct twin twin = {set->graph, set->items, key};
    uint32_t i;
    return map_find(&set->map, hash_key(set->graph, key, 0, hash_seed()), is_in_set, &twin, &i);
}

void value_set_done(struct value_set *set)
{
    map_done(&set->map);
    *set = (struct value_set){0};
}

enum { N_COPY_DEPTH_MAX = 1024 };

static uint32_t copy_value(struct graph *to, const struct graph *from, uint32_t id, unsigned depth);

static uint32_t copy_items(struct graph *to, const struct graph *from, const struct value *value,
                           unsigned depth)
{
    autofree uint32_t *items = calloc((size_t)value->n + 1, sizeof(*items));
    if (items == NULL)
        return 0;
    for (uint32_t i = 0; i < value->n; i++) {
        items[i] = copy_value(to, from, value_items(value)[i], depth + 1);
        if (items[i] == 0)
            return 0;
    }
    return value_new_items(to, (enum value_kind)value->kind, items, value->n);
}

/* A leaf: the struct itself, with a text of its own. */
static uint32_t copy_leaf(struct graph *to, const struct value *value)
{
    const bool has_text = value->kind == VALUE_TEXT || value->kind == VALUE_BIG;
    const uint32_t id =
        has_text ? value_new_text(to, value->text, value->n)
        : value->kind == VALUE_BYTES
            ? value_new_bytes(to, value->bytes->source, value->bytes->offset, value->bytes->n_bytes)
            : value_new(to, (enum value_kind)value->kind);
    if (id == 0)
        return 0;
    struct value *copy = graph_at(to, id);
    copy->kind = value->kind;
    copy->form = value->form;
    copy->tag = value->tag;
    if (!has_text && value->kind != VALUE_BYTES)
        copy->integer = value->integer;
    return id;
}

static uint32_t copy_value(struct graph *to, const struct graph *from, uint32_t id, unsigned depth)
{
    const struct value *value = graph_at(from, id);
    if (depth == N_COPY_DEPTH_MAX || value->kind > VALUE_DICT)
        return value_new(to, VALUE_NONE);
    return value_has_items(value) ? copy_items(to, from, value, depth) : copy_leaf(to, value);
}

uint32_t value_copy(struct graph *to, const struct graph *from, uint32_t id)
{
    return copy_value(to, from, id, 0);
}
