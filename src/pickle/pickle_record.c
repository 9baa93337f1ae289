/* SPDX-License-Identifier: MIT */
/*
 * Attributes of objects, from the graph or from what was read past it.
 */
#include "pickle/pickle_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void record_done(struct pickle_record *record)
{
    const int saved = errno;
    free(record->numbers);
    record->numbers = NULL;
    errno = saved;
}

/* Returns the state that an object of the graph got last; 0: none. */
static uint32_t state_of(const struct graph *graph, uint32_t id)
{
    const uint32_t states = value_part(graph, graph_at(graph, id), PART_STATES);
    const struct value *list = states == 0 ? NULL : graph_at(graph, states);
    return list == NULL || list->n == 0 ? 0 : value_items(list)[list->n - 1];
}

/* Reads a tuple, if it is one of integers. 1, 0, -ENOMEM. */
static int look_at_tuple(struct pickle_record *record, const struct value *tuple,
                         struct record_field *ret)
{
    if (tuple->kind != VALUE_TUPLE || tuple->n > record->n_most)
        return 0;
    int64_t *numbers = realloc(record->numbers, ((size_t)tuple->n + 1) * sizeof(*numbers));
    if (numbers == NULL)
        return -ENOMEM;
    record->numbers = numbers;
    for (uint32_t i = 0; i < tuple->n; i++) {
        const struct value *item = graph_at(record->graph, value_items(tuple)[i]);
        if (item->kind != VALUE_INT)
            return 0;
        numbers[i] = item->integer;
    }
    ret->kind = RECORD_NUMBERS;
    ret->n = tuple->n;
    ret->numbers = numbers;
    return 1;
}

int record_look(struct pickle_record *record, uint32_t id, struct record_field *ret)
{
    const struct graph *graph = record->graph;
    const struct value *value = graph_at(graph, id);
    *ret = (struct record_field){.kind = RECORD_OTHER};
    switch (value->kind) {
    case VALUE_NONE:
        ret->kind = RECORD_NONE;
        return 0;
    case VALUE_INT:
        ret->kind = RECORD_INTEGER;
        ret->integer = value->integer;
        return 0;
    case VALUE_TEXT:
        ret->kind = RECORD_TEXT;
        ret->text = value->text;
        ret->n = value->n;
        return 0;
    case VALUE_GLOBAL:
        ret->callable = id;
        return 0;
    case VALUE_CALL:
        ret->callable = value->call.callable;
        value = graph_at(graph, value->call.args);
        if (value->kind != VALUE_TUPLE || value->n == 0)
            return 0;
        value = graph_at(graph, value_items(value)[0]);
        break;
    default:
        break;
    }
    const int code = look_at_tuple(record, value, ret);
    return code < 0 ? code : 0;
}

int record_find(struct pickle_record *record, const char *name, struct record_field *ret)
{
    if (record->object != 0) {
        const uint32_t state = state_of(record->graph, record->object);
        if (state == 0 || graph_at(record->graph, state)->kind != VALUE_DICT)
            return 0;
        const uint32_t id = value_get(record->graph, state, name);
        const int code = id == 0 ? 0 : record_look(record, id, ret);
        return code < 0 ? code : id != 0;
    }
    const size_t n = strlen(name);
    for (uint32_t i = record->n_pairs; i-- > 0;) {
        const struct record_field *key = &record->pairs[2 * i];
        if (key->n == n && memcmp(key->text, name, n) == 0) {
            *ret = key[1];
            return 1;
        }
    }
    return 0;
}
