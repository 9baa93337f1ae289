/* SPDX-License-Identifier: MIT */
/*
 * Looking into tuples of arguments.
 */
#include "format/pytorch/object/torch_args.h"

uint32_t torch_arg(const struct graph *graph, uint32_t args, uint32_t i)
{
    if (args == 0)
        return 0;
    const struct value *value = graph_at(graph, args);
    if ((value->kind != VALUE_TUPLE && value->kind != VALUE_LIST) || i >= value->n)
        return 0;
    return value_items(value)[i];
}

uint32_t torch_n_args(const struct graph *graph, uint32_t args)
{
    if (args == 0)
        return 0;
    const struct value *value = graph_at(graph, args);
    return value->kind == VALUE_TUPLE || value->kind == VALUE_LIST ? value->n : 0;
}

bool torch_integer(const struct graph *graph, uint32_t id, int64_t *ret)
{
    if (id == 0)
        return false;
    const struct value *value = graph_at(graph, id);
    if (value->kind != VALUE_INT && value->kind != VALUE_BOOL)
        return false;
    *ret = value->integer;
    return true;
}
