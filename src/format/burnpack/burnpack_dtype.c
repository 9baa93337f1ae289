/* SPDX-License-Identifier: MIT */
/*
 * The field `dtype` in all its dialects: a name, a bool with its store, a quantized one with its
 * scheme. What schemes say is kept verbatim and shown as JSON; their bytes stay opaque.
 */
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "format/burnpack/burnpack_load.h"

#include <jansson.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEME_MAX = 4096 }; /* bytes; 200 have been seen */

static const struct {
    const char *name;
    uint8_t dtype;
} names[] = {
    {"F32", WFS_F32},   {"F16", WFS_F16},       {"BF16", WFS_BF16}, {"F64", WFS_F64},
    {"I64", WFS_I64},   {"I32", WFS_I32},       {"I16", WFS_I16},   {"I8", WFS_I8},
    {"U64", WFS_U64},   {"U32", WFS_U32},       {"U16", WFS_U16},   {"U8", WFS_U8},
    {"Bool", WFS_BOOL}, {"Flex32", WFS_FLEX32},
};

enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

/* A text in the arena that leads a list. */
static const struct wfs_text *text_new(struct burnpack_load *load, const char *name,
                                       const void *value, size_t n_bytes,
                                       const struct wfs_text *next)
{
    struct wfs_text *text = arena_calloc(&load->catalog->arena, 1, sizeof(*text));
    if (text == NULL)
        return NULL;
    text->name = name;
    text->value = arena_copy(&load->catalog->arena, value, n_bytes);
    text->n_bytes = n_bytes;
    text->next = (struct wfs_text *)(uintptr_t)next;
    return text->value == NULL ? NULL : text;
}

static int set(struct burnpack_draft *draft, enum wfs_dtype dtype)
{
    draft->tensor->dtype = draft->tensor->stored.dtype = (uint8_t)dtype;
    return 0;
}

static int take_unknown(struct burnpack_load *load, struct burnpack_draft *draft,
                        const struct cbor_span *name)
{
    if (!load->context->force)
        return wfs_fail(load->err, EOPNOTSUPP, "tensor '%s': unknown dtype '%s'",
                        burnpack_quote(&draft->key).text, burnpack_quote(name).text);
    tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_BPK_DTYPE,
               "tensor '%s': unknown dtype '%s'", burnpack_quote(&draft->key).text,
               burnpack_quote(name).text);
    draft->attrs = text_new(load, "dtype", name->bytes, name->n_bytes, NULL);
    return draft->attrs == NULL ? burnpack_load_fail_memory(load) : set(draft, WFS_OPAQUE);
}

static int take_name(struct burnpack_load *load, struct burnpack_draft *draft,
                     const struct cbor_span *name)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (!cbor_span_is(name, names[i].name))
            continue;
        if (names[i].dtype == WFS_BOOL)
            tally_note(
                &load->tally, &load->catalog->arena, WFS_FINDING_BPK_BOOL,
                "tensor '%s': its bool is written as Burn up to 0.20 wrote it; newer versions "
                "cannot read the file",
                burnpack_quote(&draft->key).text);
        return set(draft, names[i].dtype);
    }
    if (cbor_span_is(name, "QFloat"))
        return burnpack_load_fail(load, draft, "the dtype QFloat requires a scheme");
    return take_unknown(load, draft, name);
}

static int take_bool(struct burnpack_load *load, struct burnpack_draft *draft)
{
    struct cbor_span store;
    bool has_payload;
    if (!cborin_variant(&load->in, &store, &has_payload))
        return burnpack_load_fail_cbor(load, draft);
    if (has_payload)
        return burnpack_load_fail(load, draft, "expected a name as the store of a bool");
    if (cbor_span_is(&store, "U32"))
        return set(draft, WFS_BOOL32);
    if (cbor_span_is(&store, "U8")) {
        draft->attrs = text_new(load, BURNPACK_STORE, "U8", 2, NULL);
        return draft->attrs == NULL ? burnpack_load_fail_memory(load) : set(draft, WFS_BOOL);
    }
    if (cbor_span_is(&store, "Native"))
        return set(draft, WFS_BOOL);
    return wfs_fail(load->err, EOPNOTSUPP, "tensor '%s': unknown store '%s' of a bool",
                    burnpack_quote(&draft->key).text, burnpack_quote(&store).text);
}

/* jansson takes nothing where there is nothing to take, or no memory. */
static void fail_json(struct cbor_in *in)
{
    in->is_out_of_memory = in->error == NULL;
    cborin_fail(in, "out of memory");
}

static json_t *json_of(struct cbor_in *in);

static json_t *json_of_map(struct cbor_in *in)
{
    json_t *map = json_object();
    struct cbor_span name;
    if (!cborin_open_map(in))
        return map;
    while (cborin_next(in)) {
        if (!cborin_text(in, &name))
            break;
        if (json_object_setn_new_nocheck(map, name.bytes, name.n_bytes, json_of(in)) < 0)
            fail_json(in);
    }
    return map;
}

static json_t *json_of_array(struct cbor_in *in)
{
    json_t *array = json_array();
    if (!cborin_open_array(in))
        return array;
    while (cborin_next(in)) {
        if (json_array_append_new(array, json_of(in)) < 0)
            fail_json(in);
    }
    return array;
}

/*
 * A value as JSON; what has no place there is null. Recursion ends with the few bytes that a scheme
 * may have.
 */
static json_t *json_of(struct cbor_in *in)
{
    struct cbor_span text;
    uint64_t n = 0;
    int64_t integer = 0;
    double real = 0;
    bool is_true = false;
    switch (cborin_kind(in)) {
    case CBOR_MAP:
        return json_of_map(in);
    case CBOR_ARRAY:
        return json_of_array(in);
    case CBOR_TEXT:
        return cborin_text(in, &text) ? json_stringn_nocheck(text.bytes, text.n_bytes) : NULL;
    case CBOR_UINT:
        cborin_uint(in, &n);
        return n <= INT64_MAX ? json_integer((json_int_t)n) : json_real((double)n);
    case CBOR_NEGATIVE:
        cborin_int(in, &integer);
        return json_integer(integer);
    case CBOR_REAL:
        cborin_real(in, &real);
        return __builtin_isfinite(real) ? json_real(real) : json_null();
    case CBOR_BOOL:
        cborin_bool(in, &is_true);
        return json_boolean(is_true);
    default:
        cborin_skip(in);
        return json_null();
    }
}

static void note_scheme(struct burnpack_load *load, const struct burnpack_draft *draft,
                        const json_t *scheme)
{
    if (json_object_get(scheme, "level") != NULL || json_object_get(scheme, "param") != NULL)
        tally_note(
            &load->tally, &load->catalog->arena, WFS_FINDING_BPK_SCHEME,
            "tensor '%s': its quantization is written as Burn up to 0.22.0-pre wrote it; newer "
            "ones refuse the file or misread it",
            burnpack_quote(&draft->key).text);
}

/* The scheme as JSON, malloc'ed, from a copy of its bytes, which parsing may spoil. */
static int scheme_text(struct burnpack_load *load, const struct burnpack_draft *draft,
                       const void *bytes, size_t n_bytes, char **ret)
{
    uint8_t copy[SCHEME_MAX];
    struct cbor_in in;
    struct cbor_span name;
    bool has_payload;
    memcpy(copy, bytes, n_bytes);
    cborin_init(&in, copy, n_bytes, load->context->limits.cbor_depth);
    cborin_variant(&in, &name, &has_payload);
    json_t *scheme = json_of(&in);
    *ret = in.error != NULL ? NULL : json_dumps(scheme, JSON_COMPACT);
    if (*ret != NULL)
        note_scheme(load, draft, scheme);
    cborin_done(&in);
    json_decref(scheme);
    if (in.error != NULL && !in.is_out_of_memory)
        return burnpack_load_fail(load, draft,
                                  "its quantization scheme cannot be expressed as JSON");
    return *ret == NULL ? wfs_fail_memory(load->err) : 0;
}

static bool is_same_scheme(const struct burnpack_load *load, const void *bytes, size_t n_bytes)
{
    const struct wfs_text *raw = load->scheme == NULL ? NULL : load->scheme->next;
    return raw != NULL && raw->n_bytes == n_bytes && memcmp(raw->value, bytes, n_bytes) == 0;
}

/* A model has thousands of tensors with one and the same scheme: its texts are shared. */
static int keep_scheme(struct burnpack_load *load, struct burnpack_draft *draft, const void *bytes,
                       size_t n_bytes)
{
    set(draft, WFS_OPAQUE);
    if (!is_same_scheme(load, bytes, n_bytes)) {
        autofree char *json = NULL;
        const int code = scheme_text(load, draft, bytes, n_bytes, &json);
        if (code < 0)
            return code;
        const struct wfs_text *raw = text_new(load, BURNPACK_SCHEME, bytes, n_bytes, NULL);
        load->scheme = raw == NULL ? NULL : text_new(load, "quantization", json, strlen(json), raw);
    }
    draft->attrs = load->scheme;
    return load->scheme == NULL ? burnpack_load_fail_memory(load) : 0;
}

/* from: the start of the whole dtype. Closes the pair that contains it. */
static int take_scheme(struct burnpack_load *load, struct burnpack_draft *draft,
                       const uint8_t *from)
{
    if (cborin_kind(&load->in) != CBOR_MAP)
        return burnpack_load_fail(load, draft, "expected a map as the quantization scheme");
    if (!cborin_skip(&load->in))
        return burnpack_load_fail_cbor(load, draft);
    const size_t n_bytes = (size_t)(load->in.at - from);
    if (n_bytes > SCHEME_MAX)
        return wfs_fail(
            load->err, E2BIG, "tensor '%s': its quantization scheme has %s, the limit is %d",
            burnpack_quote(&draft->key).text, wfs_count(n_bytes, "byte").text, SCHEME_MAX);
    return keep_scheme(load, draft, from, n_bytes);
}

int burnpack_dtype_take(struct burnpack_load *load, struct burnpack_draft *draft)
{
    const uint8_t *from = load->in.at;
    struct cbor_span name;
    bool has_payload;
    int code;
    if (!cborin_variant(&load->in, &name, &has_payload))
        return burnpack_load_fail_cbor(load, draft);
    if (!has_payload)
        return take_name(load, draft, &name);
    if (cbor_span_is(&name, "Bool"))
        code = take_bool(load, draft);
    else if (cbor_span_is(&name, "QFloat"))
        code = take_scheme(load, draft, from);
    else if ((code = take_name(load, draft, &name)) == 0 && draft->tensor->dtype != WFS_OPAQUE)
        code = burnpack_load_fail(load, draft, "expected a dtype without a payload");
    else if (code == 0 && !cborin_skip(&load->in))
        code = burnpack_load_fail_cbor(load, draft);
    if (code < 0)
        return code;
    return cborin_next(&load->in) || load->in.error != NULL ? burnpack_load_fail_cbor(load, draft)
                                                            : 0;
}

/* ---- a scheme from JSON ---- */

static json_t *scheme_of(const char *text)
{
    if (strlen(text) > SCHEME_MAX)
        return NULL;
    json_t *scheme = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(scheme))
        return scheme;
    json_decref(scheme);
    return NULL;
}

static void put_json(struct strbuf *out, const json_t *value)
{
    static const uint8_t null = 0xf6;
    const char *name;
    const json_t *item;
    void *at;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        cborout_map(out, json_object_size(value));
        for (at = json_object_iter((json_t *)(uintptr_t)value); at != NULL;
             at = json_object_iter_next((json_t *)(uintptr_t)value, at)) {
            name = json_object_iter_key(at);
            cborout_string(out, name);
            put_json(out, json_object_iter_value(at));
        }
        break;
    case JSON_ARRAY:
        cborout_array(out, json_array_size(value));
        json_array_foreach(value, i, item) put_json(out, item);
        break;
    case JSON_STRING:
        cborout_text(out, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        cborout_int(out, json_integer_value(value));
        break;
    case JSON_REAL:
        cborout_real(out, json_real_value(value));
        break;
    case JSON_NULL:
        strbuf_add(out, (const char *)&null, sizeof(null));
        break;
    default:
        cborout_bool(out, json_is_true(value));
    }
}

bool burnpack_dtype_is_scheme(const char *text)
{
    json_t *scheme = scheme_of(text);
    json_decref(scheme);
    return scheme != NULL;
}

static void put_scheme(struct strbuf *out, const char *text)
{
    json_t *scheme = scheme_of(text);
    if (scheme == NULL) {
        out->has_failed = true; /* it was one before: there is no memory */
        return;
    }
    cborout_map(out, 1);
    cborout_string(out, "QFloat");
    put_json(out, scheme);
    json_decref(scheme);
}

/* ---- a dtype of a new file ---- */

static const struct wfs_text *find_attr(const struct wfs_tensor *tensor, const char *name)
{
    const struct wfs_text *text = tensor->attrs;
    while (text != NULL && strcmp(text->name, name) != 0)
        text = text->next;
    return text;
}

const char *burnpack_dtype_name(enum wfs_dtype dtype)
{
    switch (dtype) {
    case WFS_F64:
    case WFS_F32:
    case WFS_F16:
    case WFS_BF16:
    case WFS_I64:
    case WFS_I32:
    case WFS_I16:
    case WFS_I8:
    case WFS_U64:
    case WFS_U32:
    case WFS_U16:
    case WFS_U8:
        return wfs_dtype_name(dtype);
    case WFS_FLEX32:
        return "Flex32";
    default:
        return NULL;
    }
}

void burnpack_dtype_put(struct strbuf *out, const struct wfs_tensor *tensor)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    if (dtype == WFS_OPAQUE) {
        const struct wfs_text *scheme = find_attr(tensor, BURNPACK_SCHEME);
        if (scheme != NULL)
            strbuf_add(out, scheme->value, scheme->n_bytes);
        else
            put_scheme(out, wfs_tensor_attr(tensor, "quantization"));
        return;
    }
    if (dtype != WFS_BOOL && dtype != WFS_BOOL32) {
        cborout_string(out, burnpack_dtype_name(dtype));
        return;
    }
    const char *store = wfs_tensor_attr(tensor, BURNPACK_STORE);
    cborout_map(out, 1);
    cborout_string(out, "Bool");
    cborout_string(out, dtype == WFS_BOOL32 ? "U32" : store != NULL ? "U8" : "Native");
}
