/* SPDX-License-Identifier: MIT */
/*
 * Bytes of the graph, copied out of the file; old protocols write them as a call that encodes text.
 */
#include <stdlib.h>
#include <string.h>

#include "value/value_text.h"

enum { MAX_BYTES = 1 << 20 };

static uint32_t arg(const struct graph *graph, uint32_t args, uint32_t i)
{
    const struct value *value = args == 0 ? NULL : graph_at(graph, args);
    return value != NULL && value->kind == VALUE_TUPLE && i < value->n ? value_items(value)[i] : 0;
}

static bool is_encode(const struct graph *graph, const struct value *call)
{
    if (call->kind != VALUE_CALL || call->call.callable == 0)
        return false;
    const struct value *callable = graph_at(graph, call->call.callable);
    return callable->kind == VALUE_GLOBAL && strcmp(callable->global->module, "_codecs") == 0 &&
           strcmp(callable->global->name, "encode") == 0;
}

/* The characters of a text that are all below 256; false when one is not. */
static bool decode(const struct value *text, uint8_t *bytes, size_t *ret_n)
{
    size_t n = 0;
    for (uint32_t i = 0; i < text->n; i++) {
        const uint8_t c = (uint8_t)text->text[i];
        if (c >= 0x80 && ((c != 0xc2 && c != 0xc3) || i + 1 == text->n))
            return false;
        bytes[n++] = c < 0x80 ? c : (uint8_t)(c << 6 | ((uint8_t)text->text[++i] & 0x3f));
    }
    *ret_n = n;
    return true;
}

/* _codecs.encode(text, 'latin1') */
static bool copy_encoded(const struct graph *graph, const struct value *call, uint8_t **ret,
                         size_t *ret_n)
{
    const uint32_t first = arg(graph, call->call.args, 0);
    const uint32_t codec = arg(graph, call->call.args, 1);
    const struct value *text = first == 0 ? NULL : graph_at(graph, first);
    if (text == NULL || text->kind != VALUE_TEXT || text->n > 2 * MAX_BYTES ||
        (!value_is_text(graph, codec, "latin1") && !value_is_text(graph, codec, "latin-1")))
        return false;
    uint8_t *bytes = malloc((size_t)text->n + 1);
    if (bytes == NULL || !decode(text, bytes, ret_n)) {
        free(bytes);
        return false;
    }
    *ret = bytes;
    return true;
}

bool value_copy_range(const struct value_bytes *bytes, uint8_t **ret, size_t *ret_n)
{
    uint8_t *copy = bytes->n_bytes > MAX_BYTES ? NULL : malloc((size_t)bytes->n_bytes + 1);
    if (copy == NULL ||
        source_read(bytes->source, bytes->offset, copy, (size_t)bytes->n_bytes) < 0) {
        free(copy);
        return false;
    }
    *ret = copy;
    *ret_n = (size_t)bytes->n_bytes;
    return true;
}

bool value_copy_bytes(const struct graph *graph, uint32_t id, uint8_t **ret, size_t *ret_n)
{
    const struct value *value = graph_at(graph, id);
    if (value->kind == VALUE_BYTES)
        return value_copy_range(value->bytes, ret, ret_n);
    return is_encode(graph, value) && copy_encoded(graph, value, ret, ret_n);
}
