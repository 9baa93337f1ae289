/* SPDX-License-Identifier: MIT */
/*
 * Dtypes by name, by number, or as a map of one: {"Bool": store} and {"QFloat": scheme}. Schemes
 * are kept as JSON; their bytes stay opaque.
 */
#include "format/records/record_dtype.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "value/value_json.h"

enum { N_SCHEME_MAX = 4096, MINOR_U16 = 16, MINOR_FLEX32 = 17 };

/* In the order of their numbers; since says in which 0.x one was put between the others. */
static const struct {
    const char *name;
    uint8_t dtype, since;
} names[] = {
    {"F64", WFS_F64, 0}, {"F32", WFS_F32, 0},   {"Flex32", WFS_FLEX32, MINOR_FLEX32},
    {"F16", WFS_F16, 0}, {"BF16", WFS_BF16, 0}, {"I64", WFS_I64, 0},
    {"I32", WFS_I32, 0}, {"I16", WFS_I16, 0},   {"I8", WFS_I8, 0},
    {"U64", WFS_U64, 0}, {"U32", WFS_U32, 0},   {"U16", WFS_U16, MINOR_U16},
    {"U8", WFS_U8, 0},   {"Bool", WFS_BOOL, 0},
};

static const struct {
    const char *name;
    uint8_t dtype;
} rust_names[] = {
    {"f32", WFS_F32},
    {"f64", WFS_F64},
    {"half::binary16::f16", WFS_F16},
    {"half::bfloat::bf16", WFS_BF16},
    {"i64", WFS_I64},
    {"i32", WFS_I32},
    {"i16", WFS_I16},
    {"i8", WFS_I8},
    {"u64", WFS_U64},
    {"u32", WFS_U32},
    {"u16", WFS_U16},
    {"u8", WFS_U8},
};

enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static bool is_same(const char *name, const char *bytes, size_t n_bytes)
{
    return strlen(name) == n_bytes && memcmp(name, bytes, n_bytes) == 0;
}

bool record_dtype_parse(const char *name, size_t n_bytes, enum wfs_dtype *ret)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (is_same(names[i].name, name, n_bytes)) {
            *ret = (enum wfs_dtype)names[i].dtype;
            return true;
        }
    }
    return false;
}

const char *record_dtype_name(enum wfs_dtype dtype)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (names[i].dtype == dtype)
            return names[i].name;
    }
    return NULL;
}

enum wfs_dtype record_dtype_of_rust(const char *name, size_t n_bytes)
{
    for (size_t i = 0; i < sizeof(rust_names) / sizeof(rust_names[0]); i++) {
        if (is_same(rust_names[i].name, name, n_bytes))
            return (enum wfs_dtype)rust_names[i].dtype;
    }
    return WFS_OPAQUE;
}

/* Finds the dtype that had the number in the Burn of the file. */
static bool parse_number(const struct record_load *load, const struct value *value,
                         enum wfs_dtype *ret)
{
    int64_t number = value->integer;
    for (size_t i = 0; i < N_NAMES; i++) {
        if (load->minor != 0 && load->minor < names[i].since)
            continue;
        if (number-- == 0) {
            *ret = (enum wfs_dtype)names[i].dtype;
            return true;
        }
    }
    return false;
}

static const struct wfs_text *text_new(const struct record_load *load, const char *name,
                                       const char *value, size_t n_bytes)
{
    struct arena *arena = &load->catalog->arena;
    struct wfs_text *text = arena_calloc(arena, 1, sizeof(*text));
    if (text == NULL)
        return NULL;
    *text = (struct wfs_text){
        .name = name, .value = arena_copy(arena, value, n_bytes), .n_bytes = n_bytes};
    return text->value == NULL ? NULL : text;
}

static int keep_opaque(const struct record_load *load, const char *name, const char *value,
                       size_t n_bytes, struct record_dtype *ret)
{
    ret->dtype = WFS_OPAQUE;
    ret->attrs = text_new(load, name, value, n_bytes);
    return ret->attrs == NULL ? record_fail_memory(load) : 0;
}

static int take_unknown(struct record_load *load, const char *key, const char *name, size_t n_bytes,
                        struct record_dtype *ret)
{
    const struct wfs_quoted quoted = wfs_quote_n(name, n_bytes);
    if (!load->context->force)
        return wfs_fail(load->err, EOPNOTSUPP, "tensor '%s': unknown dtype '%s'",
                        wfs_quote(key).text, quoted.text);
    tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_REC_DTYPE,
               "tensor '%s': unknown dtype '%s'", wfs_quote(key).text, quoted.text);
    return keep_opaque(load, "dtype", name, n_bytes, ret);
}

/* Leaves out line feeds and the indentation behind them: they are between tokens, in texts they are
 * escaped. */
static size_t join_lines(char *text, size_t n_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] != '\n') {
            text[n++] = text[i];
            continue;
        }
        while (i + 1 < n_bytes && text[i + 1] == ' ')
            i++;
    }
    return n;
}

/* The scheme on one line, malloc'ed. -EFBIG when it is too long, -ENOMEM, errors as source_read. */
static int scheme_text(const struct record_load *load, uint32_t id, char **ret, size_t *ret_n)
{
    cleanup(json_writer_done) struct json_writer writer;
    json_writer_init(&writer, load->graph);
    writer.text.n_max = N_SCHEME_MAX;
    json_write(&writer, id);
    if (writer.text.has_failed || writer.error < 0)
        return writer.text.has_failed ? -ENOMEM : writer.error;
    if (writer.text.is_cut)
        return -EFBIG;
    *ret_n = join_lines(writer.text.bytes, writer.text.n_bytes);
    *ret = steal(&writer.text.bytes);
    return 0;
}

static int take_scheme(struct record_load *load, const char *key, uint32_t id,
                       struct record_dtype *ret)
{
    size_t n_bytes = 0;
    if (graph_at(load->graph, id)->kind != VALUE_DICT)
        return wfs_fail(load->err, EBADMSG,
                        "tensor '%s': expected a map as the quantization scheme",
                        wfs_quote(key).text);
    autofree char *text = NULL;
    int code = record_settle(load, id);
    if (code < 0)
        return code;
    code = scheme_text(load, id, &text, &n_bytes);
    if (code == -EFBIG)
        return wfs_fail(load->err, EBADMSG,
                        "tensor '%s': its quantization scheme cannot be expressed in %d bytes of "
                        "JSON",
                        wfs_quote(key).text, N_SCHEME_MAX);
    if (code < 0)
        return record_fail_read(load, code);
    return keep_opaque(load, "quantization", text, n_bytes, ret);
}

static int take_bool(struct record_load *load, const char *key, uint32_t id,
                     struct record_dtype *ret)
{
    const struct graph *graph = load->graph;
    const bool is_narrow = value_is_text(graph, id, "U8");
    ret->dtype = value_is_text(graph, id, "U32") ? WFS_BOOL32 : WFS_BOOL;
    if (is_narrow)
        ret->attrs = text_new(load, "bool_store", "U8", 2);
    if (is_narrow && ret->attrs == NULL)
        return record_fail_memory(load);
    if (is_narrow || ret->dtype == WFS_BOOL32 || value_is_text(graph, id, "Native"))
        return 0;
    return wfs_fail(load->err, EOPNOTSUPP, "tensor '%s': unknown store of a bool",
                    wfs_quote(key).text);
}

/* A map of one: its key is the name, its value what belongs to it. */
static int take_variant(struct record_load *load, const char *key, const struct value *value,
                        struct record_dtype *ret)
{
    const uint32_t name_id = value_items(value)[0], rest = value_items(value)[1];
    const struct value *name = graph_at(load->graph, name_id);
    if (value_is_text(load->graph, name_id, "QFloat"))
        return take_scheme(load, key, rest, ret);
    if (value_is_text(load->graph, name_id, "Bool") &&
        graph_at(load->graph, rest)->kind != VALUE_NONE)
        return take_bool(load, key, rest, ret);
    if (graph_at(load->graph, rest)->kind == VALUE_NONE &&
        record_dtype_parse(name->text, name->n, &ret->dtype))
        return 0;
    return take_unknown(load, key, name->text, name->n, ret);
}

int record_dtype_take(struct record_load *load, const char *key, uint32_t id,
                      struct record_dtype *ret)
{
    const struct value *value = graph_at(load->graph, id);
    *ret = (struct record_dtype){.dtype = WFS_OPAQUE};
    if (value->kind == VALUE_TEXT)
        return record_dtype_parse(value->text, value->n, &ret->dtype)
                   ? 0
                   : take_unknown(load, key, value->text, value->n, ret);
    if (value->kind == VALUE_DICT && value->n == 2)
        return take_variant(load, key, value, ret);
    if (value->kind == VALUE_INT && parse_number(load, value, &ret->dtype))
        return 0;
    return wfs_fail(load->err, EBADMSG, "tensor '%s': expected the name of a dtype",
                    wfs_quote(key).text);
}
