/* SPDX-License-Identifier: MIT */
/*
 * Numbers as values and back.
 */
#include "format/records/record_value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <weightfs/cleanup.h>

#include "base/bytes.h"

enum { TAG_NARROW = 1 };

uint32_t value_new_lasting(struct graph *graph, const char *text, size_t n_bytes)
{
    const uint32_t id = n_bytes > UINT32_MAX ? 0 : value_new(graph, VALUE_TEXT);
    if (id != 0) {
        graph_at(graph, id)->text = text;
        graph_at(graph, id)->n = (uint32_t)n_bytes;
    }
    return id;
}

/* One above the signed ones: nine bytes of two's complement, as in a Burnpack. */
static uint32_t value_of_large(struct graph *graph, uint64_t n)
{
    uint8_t bytes[9] = {0};
    store_le64(bytes, n);
    const uint32_t id = value_new_text(graph, (const char *)bytes, sizeof(bytes));
    if (id != 0) {
        graph_at(graph, id)->kind = VALUE_BIG;
        graph_at(graph, id)->form = FORM_UNSIGNED;
    }
    return id;
}

static uint32_t value_of_real(struct graph *graph, double real, bool is_narrow)
{
    const uint32_t id = value_new(graph, VALUE_FLOAT);
    if (id != 0) {
        graph_at(graph, id)->real = real;
        graph_at(graph, id)->tag = is_narrow ? TAG_NARROW : 0;
    }
    return id;
}

uint32_t value_of_element(struct graph *graph, const struct element *element)
{
    double real;
    float narrow;
    uint32_t low = (uint32_t)element->bits, id;
    switch (element->kind) {
    case ELEMENT_BOOL:
        id = value_new(graph, VALUE_BOOL);
        if (id != 0)
            graph_at(graph, id)->integer = element->bits != 0;
        return id;
    case ELEMENT_F32:
        memcpy(&narrow, &low, sizeof(narrow));
        return value_of_real(graph, narrow, true);
    case ELEMENT_F64:
    case ELEMENT_DECIMAL:
        memcpy(&real, &element->bits, sizeof(real));
        return value_of_real(graph, real, false);
    default:
        if (element->kind == ELEMENT_UINT && element->bits > INT64_MAX)
            return value_of_large(graph, element->bits);
        return value_new_integer(graph, (int64_t)element->bits);
    }
}

bool value_is_narrow(const struct value *value)
{
    return value->tag == TAG_NARROW;
}

/* ---- lists ---- */

static int fill(struct graph *graph, const struct source *decoded, uint32_t list, uint32_t *ids,
                uint32_t n)
{
    struct list_reader reader;
    int code = record_source_read(decoded, list, &reader);
    for (uint32_t i = 0; i < n && code == 0; i++) {
        struct element element;
        code = list_reader_next(&reader, &element);
        if (code == 0 && (ids[i] = value_of_element(graph, &element)) == 0)
            code = -ENOMEM;
    }
    list_reader_done(&reader);
    return code;
}

static int settle_list(struct graph *graph, const struct source *decoded, uint32_t id,
                       uint64_t n_max)
{
    const uint32_t number = graph_at(graph, id)->id;
    const uint64_t n = record_source_list(decoded, number)->n;
    if (n > UINT32_MAX || n > n_max || graph->n_values > n_max - n)
        return -E2BIG;
    autofree uint32_t *ids = calloc((size_t)n + 1, sizeof(*ids));
    if (ids == NULL)
        return -ENOMEM;
    const int code = fill(graph, decoded, number, ids, (uint32_t)n);
    if (code < 0)
        return code;
    const uint32_t list = value_new_items(graph, VALUE_LIST, ids, (uint32_t)n);
    if (list == 0)
        return -ENOMEM;
    *graph_at(graph, id) = *graph_at(graph, list);
    return 0;
}

int value_settle(struct graph *graph, const struct source *decoded, uint32_t id, uint64_t n_max)
{
    const struct value *value = graph_at(graph, id);
    int code = 0;
    if (value->kind == VALUE_PERSISTENT)
        return settle_list(graph, decoded, id, n_max);
    for (uint32_t i = 0; value_has_items(value) && i < value->n && code == 0; i++)
        code = value_settle(graph, decoded, value_items(value)[i], n_max);
    return code;
}
