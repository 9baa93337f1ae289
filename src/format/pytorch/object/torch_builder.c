/* SPDX-License-Identifier: MIT */
/*
 * Calls that make tensors, read as descriptions of tensors. Arguments, in order:
 *   _rebuild_tensor     storage, offset, size, stride
 *   _rebuild_tensor_v2  the same, requires_grad, hooks[, metadata]
 *   _rebuild_tensor_v3  the same, requires_grad, hooks, dtype[, metadata]
 *   _rebuild_qtensor    the same, quantizer, requires_grad, hooks
 */
#include "format/pytorch/object/torch_builder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_array.h"
#include "format/pytorch/object/torch_global.h"
#include "format/pytorch/object/torch_storage.h"
#include "format/pytorch/object/torch_storage_id.h"
#include "value/value_leaf.h"

enum { MAX_DEPTH = 16 };

static int build(struct torch *torch, uint32_t id, unsigned depth, struct torch_tensor *ret);

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

static int expect_args(struct torch *torch, struct torch_tensor *ret, uint32_t args, uint32_t min,
                       uint32_t max)
{
    const uint32_t n = torch_n_args(torch->graph, args);
    if (n >= min && n <= max)
        return 0;
    torch_tensor_spoil(
        ret, torch_print(torch, "the call that makes it has the wrong number of arguments: %u", n));
    return -EINVAL;
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

/* Reads {'conj': True, 'neg': True}: shown elements that differ from the stored ones. */
static void set_bits(const struct graph *graph, uint32_t metadata, struct torch_tensor *ret)
{
    ret->is_conjugate = is_true(graph, value_get(graph, metadata, "conj"));
    ret->is_negative = is_true(graph, value_get(graph, metadata, "neg"));
}

static int build_strided(struct torch *torch, enum torch_what what, uint32_t args,
                         struct torch_tensor *ret)
{
    static const uint8_t min[] = {4, 6, 7}, max[] = {4, 7, 8};
    const unsigned version = what - WHAT_REBUILD_TENSOR;
    if (expect_args(torch, ret, args, min[version], max[version]) < 0)
        return 0;
    const int code = set_view(torch, args, ret);
    if (code < 0)
        return code;
    if (what == WHAT_REBUILD_TENSOR_V3)
        set_dtype(torch, torch_arg(torch->graph, args, 6), ret);
    set_bits(torch->graph, torch_arg(torch->graph, args, max[version] - 1u), ret);
    return 0;
}

/* Returns (scheme, scale, zero point) or (scheme, scales, zero points, axis) as JSON. */
static const char *describe_quantizer(struct torch *torch, uint32_t quantizer)
{
    const struct graph *graph = torch->graph;
    const struct torch_global *scheme = torch_global_of(graph, torch_arg(graph, quantizer, 0));
    const uint32_t scale = torch_arg(graph, quantizer, 1);
    int64_t zero_point, axis, whole;
    char text[VALUE_FLOAT_MAX];
    if (scheme == NULL || scheme->what != WHAT_QSCHEME || scale == 0)
        return NULL;
    if (torch_integer(graph, torch_arg(graph, quantizer, 3), &axis))
        return torch_print(torch,
                           "{\"scheme\": \"%s\", \"axis\": %lld, \"scales\": \"scales\", "
                           "\"zero_points\": \"zero_points\"}",
                           scheme->name, (long long)axis);
    if (graph_at(graph, scale)->kind == VALUE_FLOAT)
        value_print_float(graph_at(graph, scale)->real, text);
    else if (torch_integer(graph, scale, &whole))
        snprintf(text, sizeof(text), "%lld", (long long)whole);
    else
        return NULL;
    if (!torch_integer(graph, torch_arg(graph, quantizer, 2), &zero_point))
        return NULL;
    return torch_print(torch, "{\"scheme\": \"%s\", \"scale\": %s, \"zero_point\": %lld}",
                       scheme->name, text, (long long)zero_point);
}

static int build_quantized(struct torch *torch, uint32_t args, struct torch_tensor *ret)
{
    if (expect_args(torch, ret, args, 7, 7) < 0)
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

/* Returns the last state of a call. */
static uint32_t state_of(const struct graph *graph, const struct value *call)
{
    const uint32_t states = value_part(graph, call, PART_STATES);
    const uint32_t n = torch_n_args(graph, states);
    return n == 0 ? 0 : torch_arg(graph, states, n - 1);
}

static int build_inner(struct torch *torch, uint32_t id, unsigned depth, struct torch_tensor *ret)
{
    const int code = build(torch, id, depth + 1, ret);
    if (code == 0)
        torch_tensor_spoil(ret, "it is not made of a tensor");
    return code < 0 ? code : 0;
}

static int build_what(struct torch *torch, enum torch_what what, uint32_t call, uint32_t args,
                      unsigned depth, struct torch_tensor *ret)
{
    const struct graph *graph = torch->graph;
    const uint32_t first = torch_arg(graph, args, 0);
    const uint32_t state = state_of(graph, graph_at(graph, call));
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

static int build(struct torch *torch, uint32_t id, unsigned depth, struct torch_tensor *ret)
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
        ret->state = state_of(torch->graph, value);
    return code < 0 ? code : 1;
}

int torch_builder_read(struct torch *torch, uint32_t id, struct torch_tensor *ret)
{
    *ret = (struct torch_tensor){.dtype = WFS_OPAQUE};
    return build(torch, id, 0, ret);
}
