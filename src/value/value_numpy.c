/* SPDX-License-Identifier: MIT */
/*
 * Scalars of numpy as JSON: {"$python": "numpy.float32", "value": 1.5}. In a pickle they are
 * scalar(dtype, bytes).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "value/value_json.h"
#include <weightfs/tensor.h>

struct scalar_type {
    const char *code, *name;
    enum wfs_dtype dtype;
};

static const struct scalar_type types[] = {
    {"b1", "bool_", WFS_BOOL},  {"i1", "int8", WFS_I8},     {"i2", "int16", WFS_I16},
    {"i4", "int32", WFS_I32},   {"i8", "int64", WFS_I64},   {"u1", "uint8", WFS_U8},
    {"u2", "uint16", WFS_U16},  {"u4", "uint32", WFS_U32},  {"u8", "uint64", WFS_U64},
    {"f2", "float16", WFS_F16}, {"f4", "float32", WFS_F32}, {"f8", "float64", WFS_F64},
};

static uint32_t arg(const struct graph *graph, uint32_t args, uint32_t i)
{
    const struct value *value = args == 0 ? NULL : graph_at(graph, args);
    return value != NULL && value->kind == VALUE_TUPLE && i < value->n ? value_items(value)[i] : 0;
}

/* The text argument of numpy.dtype('f4'), or NULL. */
static const char *code_of(const struct graph *graph, uint32_t dtype)
{
    const struct value *call = dtype == 0 ? NULL : graph_at(graph, dtype);
    if (call == NULL || call->kind != VALUE_CALL || call->call.callable == 0)
        return NULL;
    const struct value *callable = graph_at(graph, call->call.callable);
    if (callable->kind != VALUE_GLOBAL || strcmp(callable->global->module, "numpy") != 0 ||
        strcmp(callable->global->name, "dtype") != 0)
        return NULL;
    const uint32_t code = arg(graph, call->call.args, 0);
    return code == 0 || graph_at(graph, code)->kind != VALUE_TEXT ? NULL
                                                                  : graph_at(graph, code)->text;
}

static bool is_big_endian(const struct graph *graph, uint32_t dtype)
{
    const uint32_t states = value_part(graph, graph_at(graph, dtype), PART_STATES);
    if (states == 0 || graph_at(graph, states)->n == 0)
        return false;
    return value_is_text(graph, arg(graph, value_items(graph_at(graph, states))[0], 1), ">");
}

static void write_value(struct json_writer *writer, const struct scalar_type *type,
                        const uint8_t *bytes, size_t n)
{
    uint8_t wide[8] = {0};
    char text[VALUE_FLOAT_MAX];
    double real;
    memcpy(wide, bytes, n);
    if (type->dtype == WFS_BOOL) {
        text_print(&writer->text, "%s", bytes[0] != 0 ? "true" : "false");
    } else if (type->code[0] == 'u') {
        text_print(&writer->text, "%llu", (unsigned long long)load_le64(wide));
    } else if (type->code[0] == 'i') {
        const unsigned shift = (unsigned)(64 - 8 * n);
        text_print(&writer->text, "%lld",
                   (long long)((int64_t)(load_le64(wide) << shift) >> shift));
    } else if (wfs_dtype_decode(type->dtype, bytes, 1, &real) == 0) {
        value_print_float(real, text);
        text_print(&writer->text, isfinite(real) ? "%s" : "{\"$float\": \"%s\"}", text);
    }
}

static bool is_scalar(const struct graph *graph, const struct value *call)
{
    const struct value *callable =
        call->call.callable == 0 ? NULL : graph_at(graph, call->call.callable);
    return callable != NULL && callable->kind == VALUE_GLOBAL &&
           strcmp(callable->global->name, "scalar") == 0 &&
           (strcmp(callable->global->module, "numpy.core.multiarray") == 0 ||
            strcmp(callable->global->module, "numpy._core.multiarray") == 0);
}

/* UCS-4 of numpy, as text; true when all of it is. */
static bool write_characters(struct json_writer *writer, const uint8_t *bytes, size_t n)
{
    struct text text = {0};
    bool is_good = n % 4 == 0;
    for (size_t i = 0; i + 4 <= n && is_good; i += 4) {
        const uint32_t c = load_le32(bytes + i);
        char utf8[4];
        const size_t n_utf8 = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        is_good = c <= 0x10ffff;
        for (size_t k = n_utf8; k-- > 1;)
            utf8[k] = (char)(0x80 | (c >> 6 * (n_utf8 - 1 - k) & 0x3f));
        utf8[0] = (char)(n_utf8 == 1 ? c : (0xf00u >> n_utf8) | c >> 6 * (n_utf8 - 1));
        text_add(&text, utf8, n_utf8);
    }
    if (is_good && !text.is_cut) {
        text_print(&writer->text, "{\"$python\": \"numpy.str_\", \"value\": ");
        json_write_string(writer, text.bytes == NULL ? "" : text.bytes, text.n);
        text_add(&writer->text, "}", 1);
    }
    text_done(&text);
    return is_good;
}

static bool write_scalar(struct json_writer *writer, const char *code, bool is_swapped,
                         uint8_t *bytes, size_t n)
{
    if (code[0] == 'U' && !is_swapped)
        return write_characters(writer, bytes, n);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(types[i].code, code) != 0 || n * 8 != wfs_dtype_bits(types[i].dtype))
            continue;
        for (size_t k = 0; k < n / 2 && is_swapped; k++) {
            const uint8_t byte = bytes[k];
            bytes[k] = bytes[n - 1 - k];
            bytes[n - 1 - k] = byte;
        }
        text_print(&writer->text, "{\"$python\": \"numpy.%s\", \"value\": ", types[i].name);
        write_value(writer, &types[i], bytes, n);
        text_add(&writer->text, "}", 1);
        return true;
    }
    return false;
}

bool json_write_numpy(struct json_writer *writer, uint32_t id)
{
    const struct graph *graph = writer->graph;
    const struct value *call = graph_at(graph, id);
    const uint32_t dtype = arg(graph, call->call.args, 0), data = arg(graph, call->call.args, 1);
    const char *code = is_scalar(graph, call) ? code_of(graph, dtype) : NULL;
    uint8_t *bytes;
    size_t n;
    if (code == NULL || data == 0 || !value_copy_bytes(graph, data, &bytes, &n))
        return false;
    const bool is_written = write_scalar(writer, code, is_big_endian(graph, dtype), bytes, n);
    free(bytes);
    return is_written;
}
