/* SPDX-License-Identifier: MIT */
/*
 * Where the items of a container are, by what is called: arguments become items where the class has
 * the methods that SETITEMS and APPENDS use; they stay arguments where it is unknown or immutable.
 */
#include "format/pytorch/object/torch_container.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_array.h"
#include "format/pytorch/object/torch_global.h"

/* Containers can be made of each other. */
enum { MAX_DEPTH = 16 };

/* Returns whether all items are lists of two, or with tuples: lists or tuples. */
static bool has_pairs(const struct graph *graph, const struct value *list, bool with_tuples)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const struct value *pair = graph_at(graph, value_items(list)[i]);
        if (pair->n != 2 ||
            (pair->kind != VALUE_LIST && (pair->kind != VALUE_TUPLE || !with_tuples)))
            return false;
    }
    return true;
}

/* Makes a dict of a list of pairs. Returns 0 when out of memory. */
static uint32_t dict_of_pairs(struct graph *graph, const struct value *list)
{
    autofree uint32_t *items = calloc(2 * (size_t)list->n + 1, sizeof(*items));
    if (items == NULL || list->n > UINT32_MAX / 4)
        return 0;
    for (uint32_t i = 0; i < list->n; i++)
        memcpy(items + 2 * (size_t)i, value_items(graph_at(graph, value_items(list)[i])),
               2 * sizeof(*items));
    return value_new_items(graph, VALUE_DICT, items, 2 * list->n);
}

/* Returns whether the items of a value may be copied: once, so that calls that share one do not
 * make more than a small multiple of the file. */
static bool take(struct value *value)
{
    const bool is_first = (value->marks & MARK_TAKEN) == 0 || value->n == 0;
    value->marks |= MARK_TAKEN;
    return is_first;
}

static bool makes_dict(enum torch_what what)
{
    return what == WHAT_ORDERED_DICT || what == WHAT_DICT || what == WHAT_COUNTER ||
           what == WHAT_DEFAULT_DICT;
}

static int unfold(struct torch *torch, uint32_t id, unsigned depth);

/* Copies the items of a dict, or of what makes one; *ret is 0 for other values. A Counter would
 * count the items of a list. */
static int copy_items(struct torch *torch, uint32_t id, enum torch_what what, unsigned depth,
                      uint32_t *ret)
{
    struct graph *graph = torch->graph;
    struct value *value = graph_at(graph, id);
    *ret = 0;
    if (makes_dict(torch_what_of(graph, value))) {
        const int code = unfold(torch, id, depth + 1);
        id = value_part(graph, value, PART_ITEMS);
        if (code < 0 || id == 0)
            return code;
        value = graph_at(graph, id);
    }
    const bool is_dict = value->kind == VALUE_DICT,
               is_list = value->kind == VALUE_LIST || value->kind == VALUE_TUPLE;
    if ((!is_dict && (!is_list || what == WHAT_COUNTER)) || !take(value) ||
        (is_list && !has_pairs(graph, value, true)))
        return 0;
    *ret = is_dict ? value_new_items(graph, VALUE_DICT, value_items(value), value->n)
                   : dict_of_pairs(graph, value);
    return *ret == 0 ? -ENOMEM : 0;
}

/* Puts a dict before the items of a call, or a list before its elements. */
static int put_first(struct graph *graph, uint32_t id, enum value_part part, uint32_t first)
{
    struct value *call = graph_at(graph, id);
    const uint32_t later = value_part(graph, call, part);
    if (later != 0 && value_append(graph, first, value_items(graph_at(graph, later)),
                                   graph_at(graph, later)->n) < 0)
        return -ENOMEM;
    if (call->n == 0)
        call->n = value_new(graph, VALUE_PARTS);
    if (call->n == 0)
        return -ENOMEM;
    struct value *parts = graph_at(graph, call->n);
    *(part == PART_ITEMS ? &parts->parts.items : &parts->parts.elements) = first;
    return 0;
}

static int set_args(struct graph *graph, uint32_t id, const uint32_t *args, uint32_t n)
{
    const uint32_t tuple = value_new_items(graph, VALUE_TUPLE, args, n);
    graph_at(graph, id)->call.args = tuple == 0 ? graph_at(graph, id)->call.args : tuple;
    return tuple == 0 ? -ENOMEM : 0;
}

/* OrderedDict(items), Counter(items), dict(items), defaultdict(factory, items). */
static int unfold_dict(struct torch *torch, uint32_t id, enum torch_what what, unsigned depth)
{
    struct graph *graph = torch->graph;
    const uint32_t args = graph_at(graph, id)->call.args, n_before = what == WHAT_DEFAULT_DICT;
    uint32_t dict;
    if (torch_n_args(graph, args) != n_before + 1 || depth > MAX_DEPTH)
        return 0;
    int code = copy_items(torch, torch_arg(graph, args, n_before), what, depth, &dict);
    if (code < 0 || dict == 0)
        return code;
    if (graph_at(graph, dict)->n > 0)
        code = put_first(graph, id, PART_ITEMS, dict);
    return code < 0 ? code : set_args(graph, id, value_items(graph_at(graph, args)), n_before);
}

/* deque(items), deque(items, length): Python 3 writes deque((), length) and appends. */
static int unfold_deque(struct torch *torch, uint32_t id)
{
    struct graph *graph = torch->graph;
    const uint32_t args = graph_at(graph, id)->call.args, content = torch_arg(graph, args, 0);
    const uint32_t n = torch_n_args(graph, args), n_items = torch_n_args(graph, content);
    if (n == 0 || n > 2 || n_items == 0 || !take(graph_at(graph, content)))
        return 0;
    const uint32_t list =
        value_new_items(graph, VALUE_LIST, value_items(graph_at(graph, content)), n_items);
    const uint32_t none = value_new(graph, VALUE_TUPLE), rest[] = {none, torch_arg(graph, args, 1)};
    if (list == 0 || none == 0 || put_first(graph, id, PART_ELEMENTS, list) < 0)
        return -ENOMEM;
    return set_args(graph, id, rest, n == 1 ? 0 : 2);
}

static int unfold(struct torch *torch, uint32_t id, unsigned depth)
{
    const struct value *call = graph_at(torch->graph, id);
    const enum torch_what what = torch_what_of(torch->graph, call);
    /* __new__ of these classes ignores its arguments. */
    if (call->form != FORM_REDUCE && call->form != FORM_INST)
        return 0;
    if (makes_dict(what))
        return unfold_dict(torch, id, what, depth);
    return what == WHAT_DEQUE ? unfold_deque(torch, id) : 0;
}

int torch_container_unfold(struct torch *torch, uint32_t call)
{
    return unfold(torch, call, 0);
}

/* Returns whether the keys of the dict are texts, no two of which are equal. */
static bool has_names(struct graph *graph, uint32_t dict)
{
    const struct value *value = graph_at(graph, dict);
    for (uint32_t i = 0; i < value->n; i += 2)
        if (graph_at(graph, value_items(value)[i])->kind != VALUE_TEXT)
            return false;
    return value_drop_twins(graph, dict) == 0;
}

int torch_container_name(struct torch *torch, uint32_t id)
{
    struct graph *graph = torch->graph;
    const struct value *call = graph_at(graph, id);
    const uint32_t args = call->call.args, list = torch_arg(graph, args, 0);
    const enum torch_what what = torch_what_of(graph, call);
    if (call->form != FORM_REDUCE || torch_n_args(graph, args) != 1 ||
        (what != WHAT_UNKNOWN && what != WHAT_FROZEN_DICT))
        return 0;
    struct value *value = graph_at(graph, list);
    if ((value->marks & MARK_TENSOR) == 0 || value->kind != VALUE_LIST || !take(value) ||
        !has_pairs(graph, value, false))
        return 0;
    const uint32_t dict = dict_of_pairs(graph, value);
    if (dict == 0)
        return -ENOMEM;
    if (!has_names(graph, dict))
        return 0;
    graph_at(graph, dict)->form = FORM_PAIRS;
    graph_at(graph, dict)->marks = MARK_SEEN | MARK_TENSOR;
    const int code = set_args(graph, id, &dict, 1);
    graph_at(graph, graph_at(graph, id)->call.args)->marks = MARK_SEEN | MARK_TENSOR;
    return code;
}

uint32_t torch_container_content(const struct graph *graph, const struct value *call)
{
    const uint32_t args = call->call.args, first = torch_arg(graph, args, 0);
    switch (torch_what_of(graph, call)) {
    case WHAT_SEQUENCE:
    case WHAT_FROZEN_DICT:
        return first;
    case WHAT_NP_RECONSTRUCT:
        return torch_array_objects(graph, call);
    case WHAT_RECONSTRUCTOR: /* (class, its base, what the base is made of) */
        return torch_arg(graph, args, 2);
    default:
        return first != 0 && torch_n_args(graph, args) == 1 &&
                       graph_at(graph, first)->form == FORM_PAIRS
                   ? first
                   : 0;
    }
}
