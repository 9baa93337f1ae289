/* SPDX-License-Identifier: MIT */
/*
 * Plain data only: what Python makes has no place in a record. Recursion is bounded.
 */
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "base/utf8.h"
#include "format/records/mpk.h"
#include "format/records/record_write.h"
#include "format/records/record_map.h"
#include "value/value_build.h"
#include "value/value_leaf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
        if (value->tag == VALUE_NARROW)
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

bool record_spell_scheme(struct strbuf *out, const char *json)
{
    cleanup(arena_done) struct arena arena = {0};
    struct graph graph = {.arena = &arena};
    uint32_t root;
    if (value_of_json(&graph, json, &root) < 0)
        out->has_failed = true;
    else if (root == 0 || graph_at(&graph, root)->kind != VALUE_DICT)
        return false;
    return out->has_failed || spell(out, &graph, root, 0) == 0;
}
