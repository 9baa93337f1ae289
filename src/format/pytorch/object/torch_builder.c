/* SPDX-License-Identifier: MIT */
/*
 * Calls that make tensors, read as descriptions of tensors. Arguments, in order:
 *   _rebuild_tensor     storage, offset, size, stride
 *   _rebuild_tensor_v2  the same, requires_grad, hooks[, metadata]
 *   _rebuild_tensor_v3  the same, requires_grad, hooks, dtype[, metadata]
 *   _rebuild_qtensor    the same, quantizer, requires_grad, hooks
 *
 * numpy arrays, up to protocol 4: _reconstruct(class, ...) with the state (version, shape, dtype,
 * is_fortran, data); from 5 on: _frombuffer(data, dtype, shape, order).
 *
 * Composite tensors are sparse, nested, or quantized by channel. Their parts are listed as tensors
 * of their own, named after the whole.
 */
#include "format/pytorch/object/torch_builder.h"

#include <weightfs/json_out.h>
#include "base/bytes.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_storage.h"
#include "value/value_leaf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* dtype(code, ...) with the state (version, byte order, subdtype, names, fields, item bytes,
 * alignment, flags[, metadata]). */
struct item {
    enum wfs_dtype dtype; /* OPAQUE: not one of wfs_dtype */
    uint32_t n_bytes;     /* 0: none, or with a class: not stated */
    bool is_big_endian;
    char code[32];                    /* "": the dtype has a class of its own */
    char unit[40];                    /* of dates, in brackets */
    const struct value_global *class; /* of dtypes from other packages; NULL: code counts */
};

struct number_code {
    char letter;
    uint8_t n_bytes;
    uint8_t dtype;
};

static const struct number_code numbers[] = {
    {'b', 1, WFS_BOOL}, {'i', 1, WFS_I8},    {'i', 2, WFS_I16}, {'i', 4, WFS_I32},
    {'i', 8, WFS_I64},  {'u', 1, WFS_U8},    {'u', 2, WFS_U16}, {'u', 4, WFS_U32},
    {'u', 8, WFS_U64},  {'f', 2, WFS_F16},   {'f', 4, WFS_F32}, {'f', 8, WFS_F64},
    {'c', 8, WFS_C64},  {'c', 16, WFS_C128},
};

/* Parses "f4", "U12": a letter and a count, of characters for U, of bytes for all others. */
static bool parse_code(const char *code, struct item *ret)
{
    char *end;
    if (strcmp(code, "?") == 0)
        code = "b1";
    const char letter = code[0];
    if (strlen(code) >= sizeof(ret->code))
        return false;
    if (letter == '\0' || strchr("biufcSaUVMm", letter) == NULL || code[1] < '0' || code[1] > '9')
        return false;
    const unsigned long n = strtoul(code + 1, &end, 10);
    if (*end != '\0' || n > UINT32_MAX / 4)
        return false;
    ret->dtype = WFS_OPAQUE;
    ret->n_bytes = (uint32_t)(letter == 'U' ? 4 * n : n);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].letter == letter && numbers[i].n_bytes == n)
            ret->dtype = numbers[i].dtype;
    snprintf(ret->code, sizeof(ret->code), "%s", code);
    return true;
}

/* Reads the unit of dates: (b'D', 1, 1, 1), which may follow a dict. */
static int set_unit(struct torch *torch, uint32_t metadata, struct item *ret)
{
    struct value_bytes bytes;
    char unit[8] = "";
    const uint32_t last =
        torch_n_args(torch->graph, metadata) == 2 ? torch_arg(torch->graph, metadata, 1) : metadata;
    int64_t n = 1;
    int code = torch_bytes_of(torch, torch_arg(torch->graph, last, 0), &bytes);
    if (code <= 0 || bytes.n_bytes >= sizeof(unit))
        return code < 0 ? code : 0;
    code = source_read(bytes.source, bytes.offset, unit, (size_t)bytes.n_bytes);
    if (code < 0)
        return torch_fail_read(torch, code, "the unit of a date");
    torch_integer(torch->graph, torch_arg(torch->graph, last, 1), &n);
    if (strspn(unit, "YMWDhmsunpfa") != strlen(unit))
        return 0;
    if (n == 1)
        snprintf(ret->unit, sizeof(ret->unit), "[%s]", unit);
    else
        snprintf(ret->unit, sizeof(ret->unit), "[%lld%s]", (long long)n, unit);
    return 0;
}

/*
 * Reads dtype('f4'), dtype(ml_dtypes.bfloat16), dtype(numpy.record), or a class of dtypes: elements
 * of an unknown class are bytes. Returns false for an unknown dtype.
 */
static bool set_item(const struct graph *graph, uint32_t id, struct item *ret)
{
    const struct value *call = graph_at(graph, id);
    const bool is_call = call->kind == VALUE_CALL;
    const struct torch_global *class = torch_global_of(graph, is_call ? call->call.callable : id);
    if (class == NULL)
        return false;
    if (is_call && class->what == WHAT_NP_DTYPE) {
        const uint32_t code = torch_arg(graph, call->call.args, 0);
        const struct value *value = code == 0 ? call : graph_at(graph, code);
        if (value->kind == VALUE_TEXT) {
            const char *text = value->text;
            ret->is_big_endian = *text == '>';
            return parse_code(text + (*text != '\0' && strchr("<>|=", *text) != NULL), ret);
        }
        if (value->kind != VALUE_GLOBAL)
            return false;
        ret->class = value->global;
        class = torch_global_of(graph, code);
    }
    if (class != NULL && class->what == WHAT_NP_DTYPE_CLASS) {
        ret->dtype = class->dtype;
        ret->n_bytes = wfs_dtype_bits(class->dtype) / 8;
        return true;
    }
    return ret->class != NULL;
}

/* Returns 1; 0 when the dtype is unknown; a negative error. */
static int parse_item(struct torch *torch, uint32_t id, struct item *ret)
{
    const struct graph *graph = torch->graph;
    *ret = (struct item){.dtype = WFS_OPAQUE};
    if (id == 0 || !set_item(graph, id, ret))
        return 0;
    const uint32_t state = torch_arg(graph, value_part(graph, graph_at(graph, id), PART_STATES), 0);
    const uint32_t order = torch_arg(graph, state, 1);
    int64_t n_bytes;
    if (order != 0)
        ret->is_big_endian = value_is_text(graph, order, ">");
    if (ret->dtype == WFS_OPAQUE && ret->class != NULL &&
        torch_integer(graph, torch_arg(graph, state, 5), &n_bytes) && n_bytes > 0 &&
        n_bytes <= INT32_MAX)
        ret->n_bytes = (uint32_t)n_bytes;
    const bool is_date = ret->code[0] == 'M' || ret->code[0] == 'm';
    const int code = is_date ? set_unit(torch, torch_arg(graph, state, 8), ret) : 0;
    return code < 0 ? code : 1;
}

struct array {
    uint32_t shape, item, data;
    bool is_fortran;
};

static bool take_apart(const struct graph *graph, const struct value *call, struct array *ret)
{
    if (torch_what_of(graph, call) == WHAT_NP_FROMBUFFER) {
        ret->data = torch_arg(graph, call->call.args, 0);
        ret->item = torch_arg(graph, call->call.args, 1);
        ret->shape = torch_arg(graph, call->call.args, 2);
        ret->is_fortran = value_is_text(graph, torch_arg(graph, call->call.args, 3), "F");
        return ret->data != 0;
    }
    const uint32_t state = torch_arg(graph, value_part(graph, call, PART_STATES), 0);
    const uint32_t n = torch_n_args(graph, state);
    int64_t order = 0;
    if (n != 4 && n != 5) /* the first version lacks its number */
        return false;
    ret->shape = torch_arg(graph, state, n - 4);
    ret->item = torch_arg(graph, state, n - 3);
    torch_integer(graph, torch_arg(graph, state, n - 2), &order);
    ret->is_fortran = order != 0;
    ret->data = torch_arg(graph, state, n - 1);
    return true;
}

static uint32_t data_of(const struct graph *graph, const struct value *call)
{
    struct array array;
    return take_apart(graph, call, &array) ? array.data : 0;
}

bool torch_array_has_bytes(const struct graph *graph, const struct value *call)
{
    const uint32_t data = data_of(graph, call);
    return data != 0 && graph_at(graph, data)->kind != VALUE_LIST;
}

uint32_t torch_array_objects(const struct graph *graph, const struct value *call)
{
    const bool is_array = torch_what_of(graph, call) == WHAT_NP_RECONSTRUCT;
    const uint32_t data = is_array ? data_of(graph, call) : 0;
    return data != 0 && graph_at(graph, data)->kind == VALUE_LIST ? data : 0;
}

void torch_array_note_data(struct torch *torch, const struct value *call)
{
    const struct graph *graph = torch->graph;
    const enum torch_what what = torch_what_of(graph, call);
    uint32_t id = 0;
    if (what == WHAT_NP_SCALAR)
        id = torch_arg(graph, call->call.args, 1);
    else if (what == WHAT_NP_RECONSTRUCT)
        id = data_of(graph, call);
    struct value *data = id == 0 ? NULL : graph_at(graph, id);
    if (data == NULL || data->kind != VALUE_TEXT || data->form != FORM_BYTE_TEXT)
        return;
    data->form = FORM_BYTE_DATA;
    for (uint32_t i = 0; i < data->n; i++)
        if ((uint8_t)data->text[i] >= 0x80)
            torch->notes |= PICKLE_LATIN1;
}

/* Sets the text about elements that are not a dtype: ">M8[D]", "module.class". */
static void set_text(struct torch *torch, const struct item *item, struct torch_tensor *ret)
{
    const char order = item->is_big_endian ? '>' : '<';
    const bool is_ordered = strchr("UMmfc", item->code[0]) != NULL;
    ret->item_bytes = item->n_bytes;
    ret->attr_name = "numpy";
    ret->attr_value =
        item->class != NULL
            ? torch_print(torch, "%s.%s", wfs_quote(item->class->module).text,
                          wfs_quote(item->class->name).text)
            : torch_print(torch, "%c%s%s", is_ordered ? order : '|', item->code, item->unit);
}

/* Reads the array that a call makes. As torch_builder_read; 0 also for an array of objects. */
static int torch_array_read(struct torch *torch, uint32_t id, struct torch_tensor *ret)
{
    struct array array;
    struct item item;
    struct value_bytes bytes;
    uint64_t n = 1;
    const struct value *call = graph_at(torch->graph, id);
    if (!take_apart(torch->graph, call, &array) ||
        graph_at(torch->graph, array.data)->kind == VALUE_LIST)
        return 0;
    const int is_known = parse_item(torch, array.item, &item);
    if (is_known < 0)
        return is_known;
    int code = torch_tensor_set_shape(torch, ret, array.shape, 0);
    if (code < 0)
        return code;
    const int is_bytes = torch_bytes_of(torch, array.data, &bytes);
    if (is_bytes < 0)
        return is_bytes;
    const struct wfs_shape shape = {ret->rank, ret->dims};
    code = wfs_shape_count(&shape, &n);
    /* Elements whose dtype does not state their size have an even share of the bytes. */
    if (code == 0 && is_bytes && item.class != NULL && item.n_bytes == 0) {
        const uint64_t n_each = n == 0 || bytes.n_bytes < n ? 1 : bytes.n_bytes / n;
        item.n_bytes = n_each <= INT32_MAX ? (uint32_t)n_each : 0;
    }
    if (is_known && item.n_bytes == 0)
        return 0;
    if (!is_bytes)
        torch_tensor_spoil(ret, "the data of the array is not made of bytes");
    if (!is_known)
        torch_tensor_spoil(ret, "the dtype of the array is unknown");
    if (ret->trouble != NULL)
        return 1;
    ret->dtype = item.dtype;
    ret->is_fortran = array.is_fortran;
    if (item.dtype == WFS_OPAQUE)
        set_text(torch, &item, ret);
    ret->storage = (struct torch_storage){.source = bytes.source,
                                          .offset = bytes.offset,
                                          .n_bytes = bytes.n_bytes,
                                          .is_big_endian = item.is_big_endian};
    if (code < 0 || !checked_mul(n, (uint64_t)item.n_bytes, &n) || n != bytes.n_bytes)
        torch_tensor_spoil(
            ret,
            torch_print(torch, "the data of the array has %s, which do not fit its shape and dtype",
                        wfs_count(bytes.n_bytes, "byte").text));
    return 1;
}

enum { MAX_DEPTH = 16 };

static int build_tensor(struct torch *torch, uint32_t id, unsigned depth, struct torch_tensor *ret);

/* Reads storage, offset, size and stride, the first arguments of most functions. */
static int set_view(struct torch *torch, uint32_t args, struct torch_tensor *ret)
{
    const struct graph *graph = torch->graph;
    int64_t offset;
    int code = torch_storage_of(torch, torch_arg(graph, args, 0), &ret->storage);
    if (code < 0)
        return code;
    if (code == 0)
        torch_tensor_spoil(ret, "it is not a view of a storage");
    ret->dtype = code == 0 ? WFS_U8 : ret->storage.dtype;
    if (!torch_integer(graph, torch_arg(graph, args, 1), &offset) || offset < 0)
        torch_tensor_spoil(ret, "its offset is not an integer from 0 to 2^63-1");
    else
        ret->offset = (uint64_t)offset;
    code = torch_tensor_set_shape(torch, ret, torch_arg(graph, args, 2), torch_arg(graph, args, 3));
    torch_tensor_spoil(ret, ret->storage.trouble);
    return code;
}

static bool has_args(struct torch *torch, struct torch_tensor *ret, uint32_t args, uint32_t min,
                     uint32_t max)
{
    const uint32_t n = torch_n_args(torch->graph, args);
    const bool is_right = n >= min && n <= max;
    if (!is_right)
        torch_tensor_spoil(
            ret,
            torch_print(torch, "the call that makes it has the wrong number of arguments: %u", n));
    return is_right;
}

static void set_dtype(struct torch *torch, uint32_t id, struct torch_tensor *ret)
{
    const struct torch_global *global = torch_global_of(torch->graph, id);
    if (global != NULL && global->what == WHAT_DTYPE) {
        ret->dtype = global->dtype;
        return;
    }
    const struct value *value = id == 0 ? NULL : graph_at(torch->graph, id);
    const bool is_named = value != NULL && value->kind == VALUE_GLOBAL;
    torch_tensor_spoil(ret, torch_print(torch, "dtype %s is not supported",
                                        is_named ? wfs_quote(value->global->name).text : "?"));
}

static bool is_true(const struct graph *graph, uint32_t id)
{
    return id != 0 && graph_at(graph, id)->kind == VALUE_BOOL && graph_at(graph, id)->integer != 0;
}

static int build_strided(struct torch *torch, enum torch_what what, uint32_t args,
                         struct torch_tensor *ret)
{
    static const uint8_t min[] = {4, 6, 7}, max[] = {4, 7, 8};
    const unsigned version = what - WHAT_REBUILD_TENSOR;
    if (!has_args(torch, ret, args, min[version], max[version]))
        return 0;
    const int code = set_view(torch, args, ret);
    if (code < 0)
        return code;
    if (what == WHAT_REBUILD_TENSOR_V3)
        set_dtype(torch, torch_arg(torch->graph, args, 6), ret);
    /* {'conj': True, 'neg': True}: shown elements that differ from the stored ones */
    const uint32_t metadata = torch_arg(torch->graph, args, max[version] - 1u);
    ret->is_conjugate = is_true(torch->graph, value_get(torch->graph, metadata, "conj"));
    ret->is_negative = is_true(torch->graph, value_get(torch->graph, metadata, "neg"));
    return 0;
}

/* Returns a copy in the arena; NULL: it is empty or was cut, or memory ran out. */
static const char *keep_text(struct torch *torch, const struct strbuf *text)
{
    torch->has_failed = torch->has_failed || text->has_failed;
    if (text->n_bytes == 0 || text->is_cut)
        return NULL;
    const char *copy = arena_copy(&torch->catalog->arena, text->bytes, text->n_bytes);
    torch->has_failed = torch->has_failed || copy == NULL;
    return copy;
}

/* Returns (scheme, scale, zero point) or (scheme, scales, zero points, axis) as JSON. */
static const char *describe_quantizer(struct torch *torch, uint32_t quantizer)
{
    const struct graph *graph = torch->graph;
    const struct torch_global *scheme = torch_global_of(graph, torch_arg(graph, quantizer, 0));
    const uint32_t scale = torch_arg(graph, quantizer, 1);
    int64_t zero_point, axis, whole;
    char text[VALUE_FLOAT_MAX];
    autostrbuf struct strbuf json = {0};
    if (scheme == NULL || scheme->what != WHAT_QSCHEME || scale == 0)
        return NULL;
    struct json_out out = {.text = &json, .is_part = true};
    json_out_open(&out, NULL, '{', JSON_ROW);
    json_out_text(&out, "scheme", scheme->name);
    if (torch_integer(graph, torch_arg(graph, quantizer, 3), &axis)) {
        json_out_i64(&out, "axis", axis);
        json_out_text(&out, "scales", "scales");
        json_out_text(&out, "zero_points", "zero_points");
        json_out_close(&out);
        return keep_text(torch, &json);
    }
    if (graph_at(graph, scale)->kind == VALUE_FLOAT)
        value_print_float(graph_at(graph, scale)->real, text);
    else if (torch_integer(graph, scale, &whole))
        snprintf(text, sizeof(text), "%lld", (long long)whole);
    else
        return NULL;
    if (!torch_integer(graph, torch_arg(graph, quantizer, 2), &zero_point))
        return NULL;
    json_out_raw(&out, "scale", text);
    json_out_i64(&out, "zero_point", zero_point);
    json_out_close(&out);
    return keep_text(torch, &json);
}

static int build_quantized(struct torch *torch, uint32_t args, struct torch_tensor *ret)
{
    if (!has_args(torch, ret, args, 7, 7))
        return 0;
    const int code = set_view(torch, args, ret);
    if (code < 0)
        return code;
    ret->attr_name = "quantization";
    ret->attr_value = describe_quantizer(torch, torch_arg(torch->graph, args, 4));
    if (ret->attr_value == NULL)
        torch_tensor_spoil(ret, "its quantizer is unknown");
    return 0;
}

/* Reads a tensor with a shape but no bytes: dtype, size and stride from the i-th argument on. */
static int build_absent(struct torch *torch, uint32_t args, uint32_t i, struct torch_tensor *ret)
{
    ret->storage.is_absent = true;
    ret->storage.n_bytes = UINT64_MAX;
    set_dtype(torch, torch_arg(torch->graph, args, i), ret);
    return torch_tensor_set_shape(torch, ret, torch_arg(torch->graph, args, i + 1), 0);
}

static int build_inner(struct torch *torch, uint32_t id, unsigned depth, struct torch_tensor *ret)
{
    const int code = build_tensor(torch, id, depth + 1, ret);
    if (code == 0)
        torch_tensor_spoil(ret, "it is not made of a tensor");
    return code < 0 ? code : 0;
}

static int build_what(struct torch *torch, enum torch_what what, uint32_t call, uint32_t args,
                      unsigned depth, struct torch_tensor *ret)
{
    const struct graph *graph = torch->graph;
    const uint32_t first = torch_arg(graph, args, 0);
    const uint32_t state = torch_state(graph, graph_at(graph, call));
    const struct torch_global *inner;
    int code;
    switch (what) {
    case WHAT_REBUILD_TENSOR:
    case WHAT_REBUILD_TENSOR_V2:
    case WHAT_REBUILD_TENSOR_V3:
        return build_strided(torch, what, args, ret);
    case WHAT_TENSOR_CLASS:
        return build_strided(torch, WHAT_REBUILD_TENSOR, state, ret);
    case WHAT_REBUILD_QTENSOR:
        return build_quantized(torch, args, ret);
    case WHAT_REBUILD_META:
        return build_absent(torch, args, 0, ret);
    case WHAT_REBUILD_WRAPPER:
        return build_absent(torch, args, 1, ret);
    case WHAT_REBUILD_PARAMETER:
    case WHAT_REBUILD_PARAMETER_STATE:
    case WHAT_REBUILD_FROM_ARRAY:
    case WHAT_REBUILD_FROM_TENSOR:
        code = build_inner(torch, first, depth, ret);
        if (what == WHAT_REBUILD_PARAMETER_STATE)
            ret->state = torch_arg(graph, args, 3);
        return code;
    case WHAT_PARAMETER:
        return build_inner(torch, first != 0 ? first : torch_arg(graph, state, 0), depth, ret);
    case WHAT_REBUILD_TYPE:
        inner = torch_global_of(graph, first);
        if (depth >= MAX_DEPTH || inner == NULL || inner->what > WHAT_LAST_TENSOR) {
            torch_tensor_spoil(ret, "the function that makes it is unknown");
            return 0;
        }
        code = build_what(torch, inner->what, call, torch_arg(graph, args, 2), depth + 1, ret);
        ret->state = torch_arg(graph, args, 3);
        return code;
    default:
        torch_tensor_spoil(ret, "the function that makes it is not supported");
        return 0;
    }
}

/* Reads a storage that is not part of a tensor: it is shown as its elements. */
static int build_storage(struct torch *torch, uint32_t id, struct torch_tensor *ret)
{
    int code = torch_storage_of(torch, id, &ret->storage);
    if (code <= 0)
        return code;
    ret->dtype = wfs_dtype_bits(ret->storage.dtype) < 8 ? WFS_U8 : ret->storage.dtype;
    torch_tensor_spoil(ret, ret->storage.trouble);
    const uint64_t dim = ret->storage.n_bytes / (wfs_dtype_bits(ret->dtype) / 8);
    if ((code = torch_tensor_set_shape(torch, ret, 0, 0)) < 0)
        return code;
    ret->rank = 1;
    ret->dims[0] = dim;
    return 1;
}

static int build_tensor(struct torch *torch, uint32_t id, unsigned depth, struct torch_tensor *ret)
{
    if (id == 0)
        return 0;
    const struct value *value = graph_at(torch->graph, id);
    if (value->kind == VALUE_PERSISTENT && torch->find_tensor != NULL)
        return torch->find_tensor(torch, id, ret);
    const enum torch_what what = torch_what_of(torch->graph, value);
    if (value->kind == VALUE_PERSISTENT || what == WHAT_LOAD_FROM_BYTES)
        return value->kind == VALUE_CALL || torch_is_storage(torch->graph, id)
                   ? build_storage(torch, id, ret)
                   : 0;
    if (what == WHAT_UNKNOWN || what > WHAT_LAST_TENSOR)
        return 0;
    if (what == WHAT_NP_RECONSTRUCT || what == WHAT_NP_FROMBUFFER)
        return torch_array_read(torch, id, ret);
    if (depth > MAX_DEPTH) {
        torch_tensor_spoil(ret, "it is wrapped more than 16 times");
        return 1;
    }
    const int code = build_what(torch, what, id, value->call.args, depth, ret);
    if (ret->state == 0 && what != WHAT_PARAMETER && what != WHAT_TENSOR_CLASS)
        ret->state = torch_state(torch->graph, value);
    return code < 0 ? code : 1;
}

int torch_builder_read(struct torch *torch, uint32_t id, struct torch_tensor *ret)
{
    *ret = (struct torch_tensor){.dtype = WFS_OPAQUE};
    return build_tensor(torch, id, 0, ret);
}

static const char *const coo_names[] = {"indices", "values"};
static const char *const row_names[] = {"crow_indices", "col_indices", "values"};
static const char *const column_names[] = {"ccol_indices", "row_indices", "values"};
static const char *const nested_names[] = {"buffer", "sizes", "strides", "offsets"};
static const char *const scale_names[] = {"scales", "zero_points"};
/* Parts of a jagged tensor: names of arguments, and of the attributes in PyTorch. */
static const char *const jagged_args[] = {"values", "offsets", "lengths", "min_seqlen",
                                          "max_seqlen"};
static const char *const jagged_names[] = {"_values", "_offsets", "_lengths", "_min_seqlen_tensor",
                                           "_max_seqlen_tensor"};

/* Returns "sparse_coo" for torch.sparse_coo, which is a text or a global. */
static const char *layout_of(const struct graph *graph, uint32_t id)
{
    static const char prefix[] = "torch.";
    if (id != 0 && torch_what_of(graph, graph_at(graph, id)) == WHAT_LAYOUT)
        id = torch_arg(graph, graph_at(graph, id)->call.args, 0);
    if (id == 0)
        return "";
    const struct value *value = graph_at(graph, id);
    if (value->kind == VALUE_GLOBAL)
        return value->global->name;
    if (value->kind != VALUE_TEXT || strncmp(value->text, prefix, sizeof(prefix) - 1) != 0)
        return "";
    return value->text + sizeof(prefix) - 1;
}

static const char *const *sparse_names(const struct graph *graph, uint32_t layout, uint32_t *ret_n)
{
    const char *name = layout_of(graph, layout);
    *ret_n = 3;
    if (strcmp(name, "sparse_csr") == 0 || strcmp(name, "sparse_bsr") == 0)
        return row_names;
    if (strcmp(name, "sparse_csc") == 0 || strcmp(name, "sparse_bsc") == 0)
        return column_names;
    *ret_n = strcmp(name, "sparse_coo") == 0 ? 2 : 0;
    return coo_names;
}

/* Returns what makes the tensor, and the arguments for it, inside of the call that sets its
 * type, if there is one. */
static enum torch_what unwrap_type(const struct graph *graph, const struct value *call,
                                   uint32_t *ret_args)
{
    enum torch_what what = torch_what_of(graph, call);
    *ret_args = call->kind == VALUE_CALL ? call->call.args : 0;
    if (what != WHAT_REBUILD_TYPE)
        return what;
    const struct torch_global *inner = torch_global_of(graph, torch_arg(graph, *ret_args, 0));
    what = inner == NULL ? WHAT_UNKNOWN : inner->what;
    *ret_args = torch_arg(graph, *ret_args, 2);
    return what;
}

/* Returns the i-th part of a jagged tensor, not counting missing ones. */
static uint32_t nth_jagged_part(const struct graph *graph, uint32_t args, uint32_t i,
                                const char **ret_name)
{
    const uint32_t dict = torch_arg(graph, args, 0),
                   cache = value_get(graph, dict, "_metadata_cache");
    for (uint32_t k = 0; k < 5; k++) {
        const uint32_t id = value_get(graph, k < 3 ? dict : cache, jagged_args[k]);
        if (!torch_has_tensor(graph, id) || i-- > 0)
            continue;
        *ret_name = jagged_names[k];
        return id;
    }
    return 0;
}

uint32_t torch_composite_part(const struct graph *graph, const struct value *call, uint32_t i,
                              const char **ret_name)
{
    uint32_t args, n, start = 0;
    const char *const *names;
    switch (unwrap_type(graph, call, &args)) {
    case WHAT_REBUILD_SPARSE:
        names = sparse_names(graph, torch_arg(graph, args, 0), &n);
        args = torch_arg(graph, args, 1);
        break;
    case WHAT_REBUILD_NESTED:
        names = nested_names;
        n = 4;
        break;
    case WHAT_REBUILD_QTENSOR:
        names = scale_names;
        args = torch_arg(graph, args, 4);
        n = torch_has_tensor(graph, torch_arg(graph, args, 1)) ? 2 : 0;
        start = 1;
        break;
    case WHAT_REBUILD_NJT:
        return nth_jagged_part(graph, args, i, ret_name);
    default:
        return 0;
    }
    if (i >= n)
        return 0;
    *ret_name = names[i];
    return torch_arg(graph, args, start + i);
}

bool torch_is_composite(const struct graph *graph, const struct value *call)
{
    uint32_t args;
    const char *name;
    const enum torch_what what = unwrap_type(graph, call, &args);
    return what != WHAT_REBUILD_QTENSOR && torch_composite_part(graph, call, 0, &name) != 0;
}

bool torch_is_composed(const struct graph *graph, const struct value *value)
{
    uint32_t args;
    return value->kind == VALUE_CALL && (torch_is_composite(graph, value) ||
                                         unwrap_type(graph, value, &args) == WHAT_REBUILD_WRAPPER);
}

bool torch_is_quantized(const struct graph *graph, const struct value *value)
{
    uint32_t args;
    return value->kind == VALUE_CALL && unwrap_type(graph, value, &args) == WHAT_REBUILD_QTENSOR;
}

/* Adds [2, 3] for a tuple of integers, or torch.Size of one. */
static void add_shape(struct json_out *out, const struct graph *graph, uint32_t tuple)
{
    tuple = torch_tuple(graph, tuple);
    json_out_open(out, "shape", '[', JSON_ROW);
    for (uint32_t i = 0; i < torch_n_args(graph, tuple); i++) {
        int64_t number = 0;
        torch_integer(graph, torch_arg(graph, tuple, i), &number);
        json_out_i64(out, NULL, number);
    }
    json_out_close(out);
}

/* Adds "layout": "sparse_coo", "shape": [2, 3]. */
static void describe_sparse(struct json_out *out, const struct graph *graph, uint32_t args)
{
    uint32_t n;
    sparse_names(graph, torch_arg(graph, args, 0), &n);
    const uint32_t payload = torch_arg(graph, args, 1);
    int64_t is_coalesced;
    json_out_text(out, "layout", layout_of(graph, torch_arg(graph, args, 0)));
    add_shape(out, graph, torch_arg(graph, payload, n));
    if (n == 2 && torch_integer(graph, torch_arg(graph, payload, 3), &is_coalesced))
        json_out_bool(out, "is_coalesced", is_coalesced != 0);
}

/* Adds "class": "torchao.Int8Tensor", "dtype": "bfloat16", "shape": [32, 64]. */
static void describe_wrapper(struct json_out *out, const struct graph *graph, uint32_t args)
{
    const uint32_t class = torch_arg(graph, args, 0), dtype = torch_arg(graph, args, 1);
    const struct value_global *name = graph_at(graph, class)->global;
    char full[2 * WFS_QUOTE_MAX + 1];
    snprintf(full, sizeof(full), "%s.%s", wfs_quote(name->module).text, wfs_quote(name->name).text);
    json_out_text(out, "class", full);
    if (dtype != 0 && graph_at(graph, dtype)->kind == VALUE_GLOBAL)
        json_out_text(out, "dtype", wfs_quote(graph_at(graph, dtype)->global->name).text);
    add_shape(out, graph, torch_arg(graph, args, 2));
}

const char *torch_composite_text(struct torch *torch, const struct value *call,
                                 const char **ret_name)
{
    const struct graph *graph = torch->graph;
    autostrbuf struct strbuf text = {.n_max = 4096};
    struct json_out out = {.text = &text, .is_part = true};
    uint32_t args;
    const enum torch_what what = unwrap_type(graph, call, &args);
    const uint32_t first = torch_arg(graph, args, 0);
    const bool is_sparse = what == WHAT_REBUILD_SPARSE, is_jagged = what == WHAT_REBUILD_NJT;
    const bool is_wrapper =
        what == WHAT_REBUILD_WRAPPER && first != 0 && graph_at(graph, first)->kind == VALUE_GLOBAL;
    *ret_name = is_sparse ? "sparse" : "part_of";
    if (!is_sparse && !is_wrapper && !is_jagged && what != WHAT_REBUILD_NESTED)
        return NULL;
    json_out_open(&out, NULL, '{', JSON_ROW);
    if (is_sparse)
        describe_sparse(&out, graph, args);
    else if (is_wrapper)
        describe_wrapper(&out, graph, args);
    else
        json_out_text(&out, "layout", is_jagged ? "jagged" : "nested");
    json_out_close(&out);
    return keep_text(torch, &text);
}
