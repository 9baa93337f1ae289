/* SPDX-License-Identifier: MIT */
/*
 * Keys of dicts as Python prints them, and objects as JSON: those of the standard library that are
 * plain data, and scalars of numpy, get a notation of their own, all others show the name of their
 * class with what they were made of. Byte strings are written by old protocols as a call that
 * encodes a text.
 */
#include "format/pytorch/object/python_json.h"

#include <weightfs/tensor.h>
#include "base/bytes.h"
#include "base/utf8.h"
#include "format/pytorch/object/torch_call.h"
#include "value/value_json.h"
#include "value/value_leaf.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A tuple can be in a tuple many times over. */
enum { MAX_KEY_DEPTH = 2, MAX_KEY_ITEMS = 16, MAX_KEY_BYTES = 4096, MAX_BYTES = 1 << 20 };

static bool is_global(const struct graph *graph, uint32_t id, const char *module, const char *name)
{
    const struct value *value = id == 0 ? NULL : graph_at(graph, id);
    return value != NULL && value->kind == VALUE_GLOBAL && strcmp(value->global->name, name) == 0 &&
           (module == NULL || strcmp(torch_module(value->global), module) == 0);
}

/* Returns whether the value is a call of this name; module NULL: of any module. */
static bool is_call(const struct graph *graph, const struct value *value, const char *module,
                    const char *name)
{
    return value->kind == VALUE_CALL && is_global(graph, value->call.callable, module, name);
}

static bool is_encode(const struct graph *graph, const struct value *call)
{
    return is_call(graph, call, "_codecs", "encode");
}

/* Copies the bytes that _codecs.encode(text, 'latin1') makes. */
static int copy_encoded(const struct graph *graph, const struct value *call, uint8_t **ret,
                        size_t *ret_n)
{
    const uint32_t first = torch_arg(graph, call->call.args, 0);
    const uint32_t codec = torch_arg(graph, call->call.args, 1);
    const struct value *text = first == 0 ? NULL : graph_at(graph, first);
    if (text == NULL || text->kind != VALUE_TEXT || text->n > 2 * MAX_BYTES ||
        !torch_is_latin1(graph, codec))
        return 0;
    autofree uint8_t *bytes = malloc((size_t)text->n + 1);
    if (bytes == NULL)
        return -ENOMEM;
    const int64_t n = value_latin1_bytes(text, bytes);
    if (n < 0)
        return 0;
    *ret_n = (size_t)n;
    *ret = steal(&bytes);
    return 1;
}

/* Copies a byte string, or what stands for one in old protocols, into malloc'ed memory. Returns 1;
 * 0 when the value is neither or large (over a MiB); -EIO, -ENOMEM. */
static int copy_bytes(const struct graph *graph, uint32_t id, uint8_t **ret, size_t *ret_n)
{
    const struct value *value = graph_at(graph, id);
    if (value->kind == VALUE_BYTES)
        return value_copy_range(value->bytes, ret, ret_n);
    return is_encode(graph, value) ? copy_encoded(graph, value, ret, ret_n) : 0;
}

/* 'text' or b'bytes' as Python shows it, close enough to be distinct. */
static void add_quoted(struct strbuf *text, const char *bytes, size_t n, bool is_bytes)
{
    const char quote = memchr(bytes, '\'', n) != NULL && memchr(bytes, '"', n) == NULL ? '"' : '\'';
    strbuf_add(text, &quote, 1);
    for (size_t i = 0; i < n; i++) {
        const uint8_t c = (uint8_t)bytes[i];
        if (c == (uint8_t)quote || c == '\\')
            strbuf_printf(text, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t')
            strbuf_printf(text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && is_bytes))
            strbuf_printf(text, "\\x%02x", c);
        else
            strbuf_add(text, bytes + i, 1);
    }
    strbuf_add(text, &quote, 1);
}

/* Returns false when the bytes are too many for a key, without copying them. */
static bool has_short_bytes(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    if (value->kind == VALUE_BYTES)
        return value->bytes->n_bytes <= MAX_KEY_BYTES;
    const uint32_t text = is_encode(graph, value) ? torch_arg(graph, value->call.args, 0) : 0;
    return text == 0 || graph_at(graph, text)->n <= 2 * MAX_KEY_BYTES;
}

static bool add_bytes(struct strbuf *text, const struct graph *graph, uint32_t id)
{
    uint8_t *bytes;
    size_t n;
    if (graph_at(graph, id)->form == FORM_BYTEARRAY)
        return false;
    const int code = has_short_bytes(graph, id) ? copy_bytes(graph, id, &bytes, &n) : 0;
    if (code == -ENOMEM)
        strbuf_fail(text);
    if (code <= 0)
        return code == -ENOMEM;
    const bool is_short = n <= MAX_KEY_BYTES;
    strbuf_add(text, "b", is_short ? 1 : 0);
    if (is_short)
        add_quoted(text, (const char *)bytes, n, true);
    free(bytes);
    return is_short;
}

static bool add_repr(struct strbuf *text, const struct graph *graph, uint32_t id, unsigned depth);

static bool add_tuple(struct strbuf *text, const struct graph *graph, const struct value *value,
                      unsigned depth)
{
    if (depth >= MAX_KEY_DEPTH || value->n > MAX_KEY_ITEMS)
        return false;
    strbuf_add(text, "(", 1);
    for (uint32_t i = 0; i < value->n; i++) {
        strbuf_add(text, ", ", i == 0 ? 0 : 2);
        if (!add_repr(text, graph, value_items(value)[i], depth + 1))
            return false;
    }
    strbuf_add(text, ",)", value->n == 1 ? 2 : 0);
    strbuf_add(text, ")", value->n == 1 ? 0 : 1);
    return true;
}

static bool add_repr(struct strbuf *text, const struct graph *graph, uint32_t id, unsigned depth)
{
    const struct value *value = graph_at(graph, id);
    char number[VALUE_FLOAT_MAX];
    char *digits;
    switch (value->kind) {
    case VALUE_NONE:
        strbuf_add(text, "None", 4);
        return true;
    case VALUE_BOOL:
        strbuf_printf(text, "%s", value->integer != 0 ? "True" : "False");
        return true;
    case VALUE_INT:
    case VALUE_BIG:
        digits = value_print_integer(value);
        if (digits == NULL)
            strbuf_fail(text);
        else
            strbuf_add(text, digits, strlen(digits));
        free(digits);
        return true;
    case VALUE_FLOAT:
        strbuf_add(text, number, value_print_float(value->real, number));
        return true;
    case VALUE_TEXT:
        if (value->n > MAX_KEY_BYTES)
            return false;
        add_quoted(text, value->text, value->n, false);
        return true;
    case VALUE_BYTES:
    case VALUE_CALL:
        return add_bytes(text, graph, id);
    case VALUE_TUPLE:
        return add_tuple(text, graph, value, depth);
    default:
        return false;
    }
}

/*
 * Adds a key that is not text as Python shows it: numbers, True, False and None, bytes, tuples of
 * few of those. Returns false for all others, and may have added a part then.
 */
static bool python_add_key(struct strbuf *text, const struct graph *graph, uint32_t id)
{
    return add_repr(text, graph, id, 0);
}

/* ---- digests ---- */

/* What is looked at of a key, so that shared parts of many keys cannot blow up. */
enum { MAX_DIGEST_DEPTH = 16, MAX_DIGEST_VALUES = 256 };

struct digest {
    const struct graph *graph;
    unsigned depth, n_left;
    uint64_t sum;
};

static void add_to_digest(struct digest *digest, const void *bytes, size_t n)
{
    digest->sum = hash_bytes(bytes, n < MAX_KEY_BYTES ? n : MAX_KEY_BYTES, digest->sum + n + 1);
}

/* Adds a number, a text, or bytes in any of their spellings. Returns false for all others. */
static bool add_leaf_to_digest(struct digest *digest, uint32_t id)
{
    const struct value *value = graph_at(digest->graph, id);
    uint8_t *bytes;
    size_t n;
    if (value->kind <= VALUE_FLOAT && value->kind != VALUE_BIG) {
        add_to_digest(digest, &value->integer, value->kind == VALUE_NONE ? 0 : 8);
    } else if (value->kind == VALUE_BIG || value->kind == VALUE_TEXT) {
        add_to_digest(digest, value->text, value->n);
    } else if (value->kind == VALUE_GLOBAL) {
        add_to_digest(digest, value->global->name, value->global->n_name);
    } else if (value->kind == VALUE_BYTES && value->bytes->n_bytes > MAX_KEY_BYTES) {
        add_to_digest(digest, &value->bytes->n_bytes, sizeof(value->bytes->n_bytes));
    } else if (!has_short_bytes(digest->graph, id)) {
        return false; /* the text that is encoded is looked at, without a copy */
    } else if (copy_bytes(digest->graph, id, &bytes, &n) == 1) {
        add_to_digest(digest, bytes, n);
        free(bytes);
    } else {
        return false;
    }
    return true;
}

static void digest_key(struct digest *digest, uint32_t id)
{
    const struct value *value = graph_at(digest->graph, id);
    const bool is_cut = digest->n_left == 0 || digest->depth == MAX_DIGEST_DEPTH ||
                        (value->marks & MARK_TENSOR) != 0 || value->kind == VALUE_PERSISTENT;
    uint32_t child;
    add_to_digest(digest, "", 0);
    if (is_cut)
        return;
    digest->n_left--;
    if (add_leaf_to_digest(digest, id))
        return;
    /* frozenset([...]), which a set is in old protocols */
    if (is_call(digest->graph, value, NULL, "frozenset")) {
        const uint32_t items = torch_arg(digest->graph, value->call.args, 0);
        id = items != 0 ? items : id;
    }
    digest->depth++;
    for (uint32_t i = 0; digest->n_left > 0 && (child = value_child(digest->graph, id, i)) != 0;
         i++)
        digest_key(digest, child);
    digest->depth--;
}

uint32_t python_key_digest(const struct graph *graph, uint32_t id)
{
    struct digest digest = {.graph = graph, .n_left = MAX_DIGEST_VALUES};
    digest_key(&digest, id);
    return (uint32_t)digest.sum;
}

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
    if (dtype == 0 || !is_call(graph, graph_at(graph, dtype), "numpy", "dtype"))
        return NULL;
    const uint32_t code = torch_arg(graph, graph_at(graph, dtype)->call.args, 0);
    return code == 0 || graph_at(graph, code)->kind != VALUE_TEXT ? NULL
                                                                  : graph_at(graph, code)->text;
}

static bool is_big_endian(const struct graph *graph, uint32_t dtype)
{
    const uint32_t state =
        torch_arg(graph, value_part(graph, graph_at(graph, dtype), PART_STATES), 0);
    return value_is_text(graph, torch_arg(graph, state, 1), ">");
}

static void write_value(struct json_writer *writer, const struct scalar_type *type,
                        const uint8_t *bytes, size_t n)
{
    uint8_t wide[8] = {0};
    double real;
    memcpy(wide, bytes, n);
    if (type->dtype == WFS_BOOL) {
        json_out_bool(&writer->out, NULL, bytes[0] != 0);
    } else if (type->code[0] == 'u') {
        json_out_u64(&writer->out, NULL, load_le64(wide));
    } else if (type->code[0] == 'i') {
        const unsigned shift = (unsigned)(64 - 8 * n);
        json_out_i64(&writer->out, NULL, (int64_t)(load_le64(wide) << shift) >> shift);
    } else if (wfs_dtype_decode(type->dtype, bytes, 1, &real) == 0) {
        json_write_real(writer, real);
    }
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
        strbuf_add(&text, utf8, utf8_put(load_le32(bytes + i), utf8));
    }
    if (text.is_cut) {
        strbuf_fail(&writer->text);
        return true;
    }
    json_write_row(writer, "$python");
    json_out_text(&writer->out, NULL, "numpy.str_");
    json_out_text_n(&writer->out, "value", text.bytes, text.n_bytes);
    json_out_close(&writer->out);
    return true;
}

/* Writes a number in little-endian. */
static bool write_number(struct json_writer *writer, const char *code, const uint8_t *bytes,
                         size_t n)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(types[i].code, code) != 0 || n * 8 != wfs_dtype_bits(types[i].dtype))
            continue;
        char name[32];
        snprintf(name, sizeof(name), "numpy.%s", types[i].name);
        json_write_row(writer, "$python");
        json_out_text(&writer->out, NULL, name);
        json_out_name(&writer->out, "value", 5);
        write_value(writer, &types[i], bytes, n);
        json_out_close(&writer->out);
        return true;
    }
    return false;
}

/*
 * Writes a call that makes a scalar of numpy, scalar(dtype, bytes), as {"$python": "numpy.float32",
 * "value": 1.5}. Returns false, having written nothing, when it does not make one.
 */
static bool write_scalar(struct json_writer *writer, const struct value *call)
{
    const struct graph *graph = writer->graph;
    const uint32_t dtype = torch_arg(graph, call->call.args, 0),
                   data = torch_arg(graph, call->call.args, 1);
    const bool is_scalar = is_call(graph, call, "numpy.core.multiarray", "scalar") ||
                           is_call(graph, call, "numpy._core.multiarray", "scalar");
    const char *code = is_scalar ? code_of(graph, dtype) : NULL;
    autofree uint8_t *bytes = NULL;
    size_t n;
    const int copied = code == NULL || data == 0 ? 0 : copy_bytes(graph, data, &bytes, &n);
    if (copied < 0)
        json_writer_fail(writer, copied);
    if (copied <= 0)
        return copied < 0;
    const bool is_swapped = is_big_endian(graph, dtype);
    if (code[0] == 'U' && !is_swapped)
        return write_characters(writer, bytes, n);
    for (size_t i = 0; i < n / 2 && is_swapped; i++) {
        const uint8_t byte = bytes[i];
        bytes[i] = bytes[n - 1 - i];
        bytes[n - 1 - i] = byte;
    }
    return write_number(writer, code, bytes, n);
}

/* Names of Python 2, which protocols below 3 keep using. */
static const char *present_name(const struct value_global *global)
{
    static const char *const names[][2] = {
        {"xrange", "range"}, {"unicode", "str"}, {"long", "int"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(global->module, "__builtin__") == 0 && strcmp(global->name, names[i][0]) == 0)
            return names[i][1];
    return global->name;
}

static void write_name(struct json_writer *writer, const struct value_global *global)
{
    autostrbuf struct strbuf full = {0};
    const char *module = torch_module(global), *name = present_name(global);
    strbuf_add(&full, module, module == global->module ? global->n_module : strlen(module));
    strbuf_add(&full, ".", 1);
    strbuf_add(&full, name, name == global->name ? global->n_name : strlen(name));
    if (full.is_cut)
        strbuf_fail(&writer->text);
    else
        json_out_text_n(&writer->out, NULL, full.bytes, full.n_bytes);
}

/* bytes(), bytearray(b'..') and what stands for bytes in old protocols. */
static bool write_encoded(struct json_writer *writer, uint32_t id, const char *name)
{
    autofree uint8_t *bytes = NULL;
    size_t n;
    const int code = copy_bytes(writer->graph, id, &bytes, &n);
    if (code < 0)
        json_writer_fail(writer, code);
    else if (code > 0)
        json_write_memory(writer, name, bytes, n);
    return code != 0;
}

/* Writes {"NAME": value}. */
static void write_wrapped(struct json_writer *writer, const char *name, uint32_t id)
{
    json_write_row(writer, name);
    json_write(writer, id);
    json_out_close(&writer->out);
}

static bool write_builtin(struct json_writer *writer, const struct value *call)
{
    const struct graph *graph = writer->graph;
    const uint32_t callable = call->call.callable, args = call->call.args,
                   first = torch_arg(graph, args, 0);
    const bool is_bytearray = is_global(graph, callable, "builtins", "bytearray");
    if (call->n != 0)
        return false;
    if (first == 0 && (is_bytearray || is_global(graph, callable, "builtins", "bytes")))
        json_write_memory(writer, is_bytearray ? "$bytearray" : "$bytes", NULL, 0);
    else if (first == 0)
        return false;
    else if (is_bytearray)
        return write_encoded(writer, first, "$bytearray");
    else if (is_global(graph, callable, "builtins", "set"))
        write_wrapped(writer, "$set", first);
    else if (is_global(graph, callable, "builtins", "frozenset"))
        write_wrapped(writer, "$frozenset", first);
    else if (is_global(graph, callable, "builtins", "complex"))
        write_wrapped(writer, "$complex", args);
    else if (graph_at(graph, callable)->kind == VALUE_GLOBAL &&
             strcmp(graph_at(graph, callable)->global->module, "torch.jit._pickle") == 0)
        json_write(writer, first);
    else
        return false;
    return true;
}

/* Writes a member, if there is a value. */
static void write_member(struct json_writer *writer, const char *name, uint32_t id)
{
    if (id == 0)
        return;
    json_out_name(&writer->out, name, strlen(name));
    json_write(writer, id);
}

/* Writes what an object is made with: arguments, and what was added to it. */
static void write_contents(struct json_writer *writer, const struct value *call)
{
    const struct graph *graph = writer->graph;
    uint32_t args = call->form == FORM_EXTENSION ? 0 : call->call.args, kwargs = 0;
    if (call->form == FORM_NEWOBJ_EX) {
        kwargs = torch_arg(graph, args, 1);
        args = torch_arg(graph, args, 0);
    }
    if (args != 0 && !(value_has_items(graph_at(graph, args)) && graph_at(graph, args)->n == 0))
        write_member(writer, "args", args);
    write_member(writer, "kwargs", kwargs);
    write_member(writer, "items", value_part(graph, call, PART_ITEMS));
    write_member(writer, "elements", value_part(graph, call, PART_ELEMENTS));
    const uint32_t states = value_part(graph, call, PART_STATES);
    if (states != 0 && graph_at(graph, states)->n == 1)
        write_member(writer, "state", value_items(graph_at(graph, states))[0]);
    else
        write_member(writer, "states", states);
}

/* What is called: a name where it is one. */
static void write_callable(struct json_writer *writer, const struct value *call)
{
    const uint32_t id =
        call->call.callable == 0 ? 0 : torch_class_of(writer->graph, call->call.callable);
    char text[40];
    if (call->form == FORM_EXTENSION) {
        snprintf(text, sizeof(text), "extension %lld",
                 (long long)graph_at(writer->graph, call->call.args)->integer);
        json_out_text(&writer->out, NULL, text);
    } else if (graph_at(writer->graph, id)->kind == VALUE_GLOBAL) {
        write_name(writer, graph_at(writer->graph, id)->global);
    } else {
        json_write(writer, id);
    }
}

static void write_call(struct json_writer *writer, const struct value *call)
{
    const struct graph *graph = writer->graph;
    const uint32_t items = value_part(graph, call, PART_ITEMS);
    const bool is_ordered = is_global(graph, call->call.callable, "collections", "OrderedDict") &&
                            torch_arg(graph, call->call.args, 0) == 0;
    if (is_ordered && value_part(graph, call, PART_STATES) == 0 &&
        value_part(graph, call, PART_ELEMENTS) == 0) {
        if (items == 0)
            json_out_raw(&writer->out, NULL, "{}");
        else
            json_write(writer, items);
        return;
    }
    if (write_builtin(writer, call))
        return;
    json_out_open(&writer->out, NULL, '{', JSON_LINES);
    json_out_name(&writer->out, "$python", 7);
    write_callable(writer, call);
    write_contents(writer, call);
    json_out_close(&writer->out);
}

static void write_object(struct json_writer *writer, uint32_t id)
{
    const struct value *value = graph_at(writer->graph, id);
    if (value->kind == VALUE_CALL) {
        if (!write_encoded(writer, id, "$bytes") && !write_scalar(writer, value))
            write_call(writer, value);
        return;
    }
    const uint32_t class = torch_class_of(writer->graph, id);
    if (graph_at(writer->graph, class)->kind == VALUE_GLOBAL) {
        json_write_row(writer, "$python");
        write_name(writer, graph_at(writer->graph, class)->global);
        json_out_close(&writer->out);
    } else if (value->kind == VALUE_PERSISTENT) {
        write_wrapped(writer, "$persistent", value->id);
    } else {
        json_out_raw(&writer->out, NULL, "null");
    }
}

/* An OrderedDict is shown as the dict in it. */
static const struct value *dict_of(const struct graph *graph, const struct value *call)
{
    static const struct value empty = {.kind = VALUE_DICT};
    const uint32_t items = value_part(graph, call, PART_ITEMS);
    if (!is_global(graph, call->call.callable, NULL, "OrderedDict"))
        return NULL;
    return items == 0 ? &empty : graph_at(graph, items);
}

const struct value_notation python_notation = {python_add_key, write_object, dict_of};
