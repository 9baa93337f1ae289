/* SPDX-License-Identifier: MIT */
/*
 * The kinds of fields, and what they mean together.
 */
#include "format/records/record_map.h"

#include "value/value.h"
#include "value/value_leaf.h"

enum {
    FIELD_TEXT = VALUE_TEXT + 1,
    FIELD_BYTES = VALUE_BYTES + 1,
    FIELD_LIST = VALUE_LIST + 1,
    FIELD_TUPLE = VALUE_TUPLE + 1,
    FIELD_DICT = VALUE_DICT + 1,
    FIELD_NUMBERS = VALUE_PERSISTENT + 1,
};

uint8_t record_kind_of(enum value_kind kind)
{
    return (uint8_t)(kind + 1);
}

uint8_t record_kind(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    const bool is_text = value->kind == VALUE_BYTES && value->form == FORM_BYTE_TEXT;
    return record_kind_of(is_text ? VALUE_TEXT : (enum value_kind)value->kind);
}

struct record_map record_map_make(uint32_t n, record_find_kind *find, const void *ctx, uint32_t id)
{
    return (struct record_map){.n = n,
                               .id = find(ctx, id, "id"),
                               .param = find(ctx, id, "param"),
                               .bytes = find(ctx, id, "bytes"),
                               .value = find(ctx, id, "value"),
                               .shape = find(ctx, id, "shape"),
                               .dtype = find(ctx, id, "dtype")};
}

static uint8_t find_kind(const void *ctx, uint32_t map, const char *name)
{
    const struct graph *graph = ctx;
    const uint32_t id = value_get(graph, map, name);
    return id == 0 ? 0 : record_kind(graph, id);
}

struct record_map record_map_of(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    return value->kind == VALUE_DICT ? record_map_make(value->n / 2, find_kind, graph, id)
                                     : (struct record_map){0};
}

struct record_map record_map_of_tensor(void)
{
    return (struct record_map){
        .n = 3, .bytes = FIELD_BYTES, .shape = FIELD_LIST, .dtype = FIELD_TEXT};
}

struct record_map record_map_of_parameter(void)
{
    return (struct record_map){.n = 2, .id = FIELD_TEXT, .param = FIELD_DICT};
}

/* Returns whether the field can be a list of numbers: one, or an empty list. */
static bool is_numbers(uint8_t kind)
{
    return kind == FIELD_NUMBERS || kind == FIELD_LIST || kind == FIELD_TUPLE;
}

bool record_map_has_bytes(const struct record_map *map)
{
    if (map->bytes == FIELD_BYTES)
        return map->shape != 0 || map->dtype != 0;
    return (map->bytes == FIELD_TEXT || is_numbers(map->bytes)) && is_numbers(map->shape) &&
           map->dtype != 0;
}

bool record_map_is_tensor(const struct record_map *map)
{
    return record_map_has_bytes(map) || (is_numbers(map->value) && is_numbers(map->shape));
}

/* A parameter has an id that is a text. A map of nothing but a tensor called `param`, or of that
 * and an `id` of another kind, is a damaged one. */
bool record_map_is_parameter(const struct record_map *map, const struct record_map *param)
{
    if (map->param == 0)
        return false;
    /* It may be a damaged tensor. */
    const bool has_field = param->bytes != 0 || param->value != 0 || param->shape != 0;
    if (map->id == FIELD_TEXT)
        return record_map_is_tensor(param) || (map->n == 2 && has_field);
    return record_map_is_tensor(param) && map->n == (map->id == 0 ? 1 : 2) && map->id != FIELD_DICT;
}

bool record_is_tensor(const struct graph *graph, uint32_t id)
{
    const struct record_map map = record_map_of(graph, id);
    if (map.param == 0)
        return record_map_is_tensor(&map);
    const struct record_map param = record_map_of(graph, value_get(graph, id, "param"));
    return record_map_is_tensor(&map) || record_map_is_parameter(&map, &param);
}
