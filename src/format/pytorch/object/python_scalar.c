/* SPDX-License-Identifier: MIT */
/*
 * Scalars of numpy as JSON: {"$python": "numpy.float32", "value": 1.5}. In a pickle they are
 * scalar(dtype, bytes).
 */
#include "format/pytorch/object/python_scalar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <weightfs/tensor.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "format/pytorch/object/python_key.h"
#include "format/pytorch/object/torch_args.h"
#include "value/value_leaf.h"

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
    const uint32_t code = torch_arg(graph, call->call.args, 0);
    return code == 0 || graph_at(graph, code)->kind != VALUE_TEXT ? NULL
                                                                  : graph_at(graph, code)->text;
}

static bool is_big_endian(const struct graph *graph, uint32_t dtype)
{
    const uint32_t states = value_part(graph, graph_at(graph, dtype), PART_STATES);
    if (states == 0 || graph_at(graph, states)->n == 0)
        return false;
    return value_is_text(graph, torch_arg(graph, value_items(graph_at(graph, states))[0], 1), ">");
}

static void write_value(struct json_writer *writer, const struct scalar_type *type,
                        const uint8_t *bytes, size_t n)
{
    uint8_t wide[8] = {0};
    char text[VALUE_FLOAT_MAX];
    double real;
    memcpy(wide, bytes, n);
    if (type->dtype == WFS_BOOL) {
        strbuf_printf(&writer->text, "%s", bytes[0] != 0 ? "true" : "false");
    } else if (type->code[0] == 'u') {
        strbuf_printf(&writer->text, "%llu", (unsigned long long)load_le64(wide));
    } else if (type->code[0] == 'i') {
        const unsigned shift = (unsigned)(64 - 8 * n);
        strbuf_printf(&writer->text, "%lld",
                      (long long)((int64_t)(load_le64(wide) << shift) >> shift));
    } else if (wfs_dtype_decode(type->dtype, bytes, 1, &real) == 0) {
        value_print_float(real, text);
        strbuf_printf(&writer->text, isfinite(real) ? "%s" : "{\"$float\": \"%s\"}", text);
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

/* Writes UCS-4 of numpy as text; false when a number is not a character. */
static bool write_characters(struct json_writer *writer, const uint8_t *bytes, size_t n)
{
    autostrbuf struct strbuf text = {0};
    if (n % 4 != 0)
        return false;
    for (size_t i = 0; i < n; i += 4) {
        char utf8[4];
        if (load_le32(bytes + i) > 0x10ffff)
            return false;
        strbuf_add(&text, utf8, utf8_encode(load_le32(bytes + i), utf8));
    }
    if (text.is_cut) {
        strbuf_fail(&writer->text);
        return true;
    }
    strbuf_puts(&writer->text, "{\"$python\": \"numpy.str_\", \"value\": ");
    strbuf_json_bytes(&writer->text, text.bytes, text.n_bytes);
    strbuf_puts(&writer->text, "}");
    return true;
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
        strbuf_printf(&writer->text, "{\"$python\": \"numpy.%s\", \"value\": ", types[i].name);
        write_value(writer, &types[i], bytes, n);
        strbuf_add(&writer->text, "}", 1);
        return true;
    }
    return false;
}

bool python_write_scalar(struct json_writer *writer, uint32_t id)
{
    const struct graph *graph = writer->graph;
    const struct value *call = graph_at(graph, id);
    const uint32_t dtype = torch_arg(graph, call->call.args, 0),
                   data = torch_arg(graph, call->call.args, 1);
    const char *code = is_scalar(graph, call) ? code_of(graph, dtype) : NULL;
    uint8_t *bytes;
    size_t n;
    const int copied = code == NULL || data == 0 ? 0 : python_copy_bytes(graph, data, &bytes, &n);
    if (copied < 0)
        json_writer_fail(writer, copied);
    if (copied <= 0)
        return copied < 0;
    const bool is_written = write_scalar(writer, code, is_big_endian(graph, dtype), bytes, n);
    free(bytes);
    return is_written;
}
