/* SPDX-License-Identifier: MIT */
/*
 * numpy arrays in pickles. Up to protocol 4: _reconstruct(class, ...) with the state (version,
 * shape, dtype, is_fortran, data); from 5 on: _frombuffer(data, dtype, shape, order).
 */
#include "format/pytorch/object/torch_array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_bytes.h"
#include "format/pytorch/object/torch_global.h"

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

/* Reads dtype(ml_dtypes.bfloat16), dtype(numpy.record): elements of an unknown class are bytes. */
static bool set_class(const struct graph *graph, uint32_t id, struct item *ret)
{
    const struct torch_global *global = torch_global_of(graph, id);
    ret->class = graph_at(graph, id)->global;
    if (global != NULL && global->what == WHAT_NP_DTYPE_CLASS) {
        ret->dtype = global->dtype;
        ret->n_bytes = wfs_dtype_bits(global->dtype) / 8;
    }
    return true;
}

/* Returns false for an unknown dtype. */
static bool set_item(const struct graph *graph, uint32_t id, struct item *ret)
{
    const struct value *call = graph_at(graph, id);
    const struct torch_global *global =
        torch_global_of(graph, call->kind == VALUE_CALL ? call->call.callable : id);
    if (global != NULL && global->what == WHAT_NP_DTYPE_CLASS) {
        ret->dtype = global->dtype;
        ret->n_bytes = wfs_dtype_bits(global->dtype) / 8;
        return true;
    }
    if (global == NULL || global->what != WHAT_NP_DTYPE || call->kind != VALUE_CALL)
        return false;
    const uint32_t code = torch_arg(graph, call->call.args, 0);
    if (code != 0 && graph_at(graph, code)->kind == VALUE_GLOBAL)
        return set_class(graph, code, ret);
    if (code == 0 || graph_at(graph, code)->kind != VALUE_TEXT)
        return false;
    const char *text = graph_at(graph, code)->text;
    ret->is_big_endian = *text == '>';
    return parse_code(text + (*text != '\0' && strchr("<>|=", *text) != NULL), ret);
}

static int parse_item(struct torch *torch, uint32_t id, struct item *ret, bool *ret_is_known)
{
    const struct graph *graph = torch->graph;
    *ret = (struct item){.dtype = WFS_OPAQUE};
    *ret_is_known = id != 0 && set_item(graph, id, ret);
    if (!*ret_is_known)
        return 0;
    const uint32_t states = value_part(graph, graph_at(graph, id), PART_STATES);
    const uint32_t state = torch_arg(graph, states, 0);
    const uint32_t order = torch_arg(graph, state, 1);
    int64_t n_bytes;
    if (order != 0)
        ret->is_big_endian = value_is_text(graph, order, ">");
    if (ret->dtype == WFS_OPAQUE && ret->class != NULL &&
        torch_integer(graph, torch_arg(graph, state, 5), &n_bytes) && n_bytes > 0 &&
        n_bytes <= INT32_MAX)
        ret->n_bytes = (uint32_t)n_bytes;
    return ret->code[0] == 'M' || ret->code[0] == 'm'
               ? set_unit(torch, torch_arg(graph, state, 8), ret)
               : 0;
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

bool torch_array_has_bytes(const struct graph *graph, const struct value *call)
{
    struct array array;
    /* The data of an array of objects is a list. */
    return take_apart(graph, call, &array) && graph_at(graph, array.data)->kind != VALUE_LIST;
}

uint32_t torch_array_objects(const struct graph *graph, const struct value *call)
{
    struct array array;
    return torch_what_of(graph, call) == WHAT_NP_RECONSTRUCT && take_apart(graph, call, &array) &&
                   graph_at(graph, array.data)->kind == VALUE_LIST
               ? array.data
               : 0;
}

void torch_array_note_data(struct torch *torch, const struct value *call)
{
    const struct graph *graph = torch->graph;
    const enum torch_what what = torch_what_of(graph, call);
    struct array array = {0};
    if (what == WHAT_NP_SCALAR)
        array.data = torch_arg(graph, call->call.args, 1);
    else if (what == WHAT_NP_RECONSTRUCT)
        take_apart(graph, call, &array);
    struct value *data = array.data == 0 ? NULL : graph_at(graph, array.data);
    if (data == NULL || data->kind != VALUE_TEXT || data->form != FORM_BYTE_TEXT)
        return;
    data->form = FORM_BYTE_DATA;
    for (uint32_t i = 0; i < data->n; i++)
        if ((uint8_t)data->text[i] >= 0x80)
            torch->notes |= PICKLE_LATIN1;
}

/* Sets the size of elements whose dtype does not state one: an even share of the bytes. */
static void share_bytes(struct item *item, uint64_t n_elems, uint64_t n_bytes)
{
    const uint64_t n_each = n_elems == 0 || n_bytes < n_elems ? 1 : n_bytes / n_elems;
    if (item->class != NULL && item->n_bytes == 0 && n_each <= INT32_MAX)
        item->n_bytes = (uint32_t)n_each;
}

static void set_text(struct torch *torch, const struct item *item, struct torch_tensor *ret)
{
    const bool is_ordered = strchr("UMmfc", item->code[0]) != NULL;
    ret->item_bytes = item->n_bytes;
    ret->attr_name = "numpy";
    if (item->class != NULL) {
        ret->attr_value = torch_print(torch, "%s.%s", wfs_quote(item->class->module).text,
                                      wfs_quote(item->class->name).text);
        return;
    }
    ret->attr_value = torch_print(torch, "%c%s%s",
                                  !is_ordered           ? '|'
                                  : item->is_big_endian ? '>'
                                                        : '<',
                                  item->code, item->unit);
}

int torch_array_read(struct torch *torch, uint32_t id, struct torch_tensor *ret)
{
    struct array array;
    struct item item;
    struct value_bytes bytes;
    bool is_known;
    uint64_t n = 1;
    const struct value *call = graph_at(torch->graph, id);
    if (!take_apart(torch->graph, call, &array) || !torch_array_has_bytes(torch->graph, call))
        return 0;
    int code = parse_item(torch, array.item, &item, &is_known);
    if (code < 0 || (code = torch_tensor_set_shape(torch, ret, array.shape, 0)) < 0 ||
        (code = torch_bytes_of(torch, array.data, &bytes)) < 0)
        return code;
    const bool is_bytes = code == 1;
    const struct wfs_shape shape = {ret->rank, ret->dims};
    code = wfs_shape_count(&shape, &n);
    if (code == 0 && is_bytes)
        share_bytes(&item, n, bytes.n_bytes);
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
