/* SPDX-License-Identifier: MIT */
/*
 * Plain data only: what Python makes has no place in a record. Recursion is bounded.
 */
#include "format/records/record_spelling.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "format/records/record_map.h"
#include "format/records/record_value.h"
#include "text/json.h"
#include "value/value_leaf.h"

enum { N_DEPTH_MAX = 1000, N_UNSIGNED = 9 };

static int spell(struct strbuf *out, const struct graph *graph, uint32_t id, unsigned depth);

static int spell_items(struct strbuf *out, const struct graph *graph, const struct value *value,
                       unsigned depth)
{
    const bool is_map = value->kind == VALUE_DICT;
    int code = 0;
    if (is_map)
        mpkout_map(out, value->n / 2);
    else
        mpkout_array(out, value->n);
    for (uint32_t i = 0; i < value->n && code == 0; i++) {
        const uint32_t item = value_items(value)[i];
        if (is_map && i % 2 == 0 && graph_at(graph, item)->kind != VALUE_TEXT)
            return -EINVAL;
        code = spell(out, graph, item, depth + 1);
    }
    return code;
}

/* An integer above the signed ones. */
static int spell_large(struct strbuf *out, const struct value *value)
{
    if (value->n != N_UNSIGNED || value->text[N_UNSIGNED - 1] != 0)
        return -EINVAL;
    mpkout_uint(out, load_le64(value->text));
    return 0;
}

static int spell_bytes(struct strbuf *out, const struct value *value)
{
    autofree uint8_t *bytes = NULL;
    size_t n_bytes;
    const int code = value_copy_range(value->bytes, &bytes, &n_bytes);
    if (code <= 0)
        return code < 0 ? code : -EINVAL; /* large ones are tensors */
    if (value->form == FORM_BYTE_TEXT) {
        mpkout_text(out, (const char *)bytes, n_bytes);
    } else {
        mpkout_bytes(out, (uint32_t)n_bytes);
        strbuf_add(out, (const char *)bytes, n_bytes);
    }
    return 0;
}

static int spell(struct strbuf *out, const struct graph *graph, uint32_t id, unsigned depth)
{
    const struct value *value = graph_at(graph, id);
    if (depth == N_DEPTH_MAX)
        return -EINVAL;
    switch (value->kind) {
    case VALUE_NONE:
        mpkout_nil(out);
        return 0;
    case VALUE_BOOL:
        mpkout_bool(out, value->integer != 0);
        return 0;
    case VALUE_INT:
        mpkout_int(out, value->integer);
        return 0;
    case VALUE_BIG:
        return spell_large(out, value);
    case VALUE_FLOAT:
        if (value_is_narrow(value))
            mpkout_f32(out, value->real);
        else
            mpkout_f64(out, value->real);
        return 0;
    case VALUE_TEXT:
        if (utf8_valid(value->text, value->n) != value->n)
            return -EINVAL;
        mpkout_text(out, value->text, value->n);
        return 0;
    case VALUE_BYTES:
        return spell_bytes(out, value);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
        if (record_is_tensor(graph, id))
            return -EEXIST;
        return spell_items(out, graph, value, depth);
    default:
        return -EINVAL;
    }
}

int record_spell_value(struct strbuf *out, const struct graph *graph, uint32_t id)
{
    return spell(out, graph, id, 0);
}

/* ---- schemes ---- */

static void spell_json(struct strbuf *out, struct json *json);

/* What is in a container is written first, because its head needs the count. */
static void spell_container(struct strbuf *out, struct json *json, bool is_map)
{
    autostrbuf struct strbuf inner = {0};
    struct json_text key;
    uint32_t n = 0;
    if (is_map)
        json_open_object(json);
    else
        json_open_array(json);
    while (is_map ? json_next_key(json, &key) : json_next_item(json)) {
        if (is_map)
            mpkout_text(&inner, key.bytes, key.n_bytes);
        spell_json(&inner, json);
        n++;
    }
    if (is_map)
        mpkout_map(out, n);
    else
        mpkout_array(out, n);
    strbuf_add(out, inner.bytes, inner.n_bytes);
    out->has_failed = out->has_failed || inner.has_failed;
}

static void spell_number(struct strbuf *out, struct json *json)
{
    const char *start = json->at;
    struct element element = {0};
    double real;
    if (!json_skip(json) || !element_parse(start, (size_t)(json->at - start), &element))
        json_fail(json, "a number of too many digits");
    if (element.kind == ELEMENT_UINT) {
        mpkout_uint(out, element.bits);
    } else if (element.kind == ELEMENT_NEGATIVE) {
        mpkout_int(out, (int64_t)element.bits);
    } else {
        memcpy(&real, &element.bits, sizeof(real));
        mpkout_f64(out, real);
    }
}

/* The parser has no more than 127 open containers. */
static void spell_json(struct strbuf *out, struct json *json)
{
    const enum json_kind kind = json_kind(json);
    struct json_text text;
    switch (kind) {
    case JSON_KIND_OBJECT:
    case JSON_KIND_ARRAY:
        spell_container(out, json, kind == JSON_KIND_OBJECT);
        break;
    case JSON_KIND_STRING:
        if (json_take_string(json, &text))
            mpkout_text(out, text.bytes, text.n_bytes);
        break;
    case JSON_KIND_NUMBER:
        spell_number(out, json);
        break;
    case JSON_KIND_BOOL:
        mpkout_bool(out, *json->at == 't');
        json_skip(json);
        break;
    default:
        mpkout_nil(out);
        if (!json_take_null(json))
            json_fail(json, "expected a value");
    }
}

bool record_spell_scheme(struct strbuf *out, const char *json)
{
    autofree char *copy = strdup(json);
    if (copy == NULL) {
        out->has_failed = true;
        return true;
    }
    struct json parser = json_of(copy, strlen(copy));
    if (json_kind(&parser) != JSON_KIND_OBJECT)
        return false;
    spell_json(out, &parser);
    return json_end(&parser);
}
