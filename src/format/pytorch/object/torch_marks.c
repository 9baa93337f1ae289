/* SPDX-License-Identifier: MIT */
/*
 * One pass over the graph, each value once, with a stack of its own. On the way the items of
 * containers get where they are looked for, however the pickle spells them: arguments become items
 * where the class has the methods that SETITEMS and APPENDS use; they stay arguments where it is
 * unknown or immutable. Another pass finds modules.
 */
#include "format/pytorch/object/torch_marks.h"

#include <weightfs/array.h>
#include "format/pytorch/object/torch_builder.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_storage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* Makes values that contain others, or remembers that memory ran out and returns 0. */
static uint32_t new_items(struct torch *torch, enum value_kind kind, const uint32_t *items,
                          uint32_t n)
{
    const uint32_t id = value_new_items(torch->graph, kind, items, n);
    torch->has_failed = torch->has_failed || id == 0;
    return id;
}

static uint32_t new_dict_of_pairs(struct torch *torch, const struct value *list)
{
    const struct graph *graph = torch->graph;
    autofree uint32_t *items = calloc(2 * (size_t)list->n + 1, sizeof(*items));
    if (items == NULL || list->n > UINT32_MAX / 4) {
        torch->has_failed = true;
        return 0;
    }
    for (uint32_t i = 0; i < list->n; i++)
        memcpy(items + 2 * (size_t)i, value_items(graph_at(graph, value_items(list)[i])),
               2 * sizeof(*items));
    return new_items(torch, VALUE_DICT, items, 2 * list->n);
}

/* Returns whether the items of a value may be copied: once, so that calls that share one do not
 * make more than a small multiple of the file. */
static bool take_items(struct value *value)
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

static void unfold_items(struct torch *torch, uint32_t id, unsigned depth);

/* Copies the items of a dict, or of what makes one; returns 0 for other values. A Counter would
 * count the items of a list. */
static uint32_t copy_items(struct torch *torch, uint32_t id, enum torch_what what, unsigned depth)
{
    struct graph *graph = torch->graph;
    struct value *value = graph_at(graph, id);
    if (makes_dict(torch_what_of(graph, value))) {
        unfold_items(torch, id, depth + 1);
        id = value_part(graph, value, PART_ITEMS);
        if (id == 0)
            return 0;
        value = graph_at(graph, id);
    }
    if (value->kind == VALUE_DICT)
        return take_items(value) ? new_items(torch, VALUE_DICT, value_items(value), value->n) : 0;
    const bool is_list = value->kind == VALUE_LIST || value->kind == VALUE_TUPLE;
    return is_list && what != WHAT_COUNTER && take_items(value) && has_pairs(graph, value, true)
               ? new_dict_of_pairs(torch, value)
               : 0;
}

/* Puts a dict before the items of a call, or a list before its elements. */
static void put_first(struct torch *torch, uint32_t id, enum value_part part, uint32_t first)
{
    struct graph *graph = torch->graph;
    struct value *call = graph_at(graph, id);
    const uint32_t later = value_part(graph, call, part);
    if (call->n == 0)
        call->n = value_new(graph, VALUE_PARTS);
    if (call->n == 0 ||
        (later != 0 && value_append(graph, first, value_items(graph_at(graph, later)),
                                    graph_at(graph, later)->n) < 0)) {
        torch->has_failed = true;
        return;
    }
    struct value *parts = graph_at(graph, call->n);
    *(part == PART_ITEMS ? &parts->parts.items : &parts->parts.elements) = first;
}

static void set_args(struct torch *torch, uint32_t id, const uint32_t *args, uint32_t n)
{
    const uint32_t tuple = new_items(torch, VALUE_TUPLE, args, n);
    if (tuple != 0)
        graph_at(torch->graph, id)->call.args = tuple;
}

/* OrderedDict(items), Counter(items), dict(items), defaultdict(factory, items). */
static void unfold_dict(struct torch *torch, uint32_t id, enum torch_what what, unsigned depth)
{
    struct graph *graph = torch->graph;
    const uint32_t args = graph_at(graph, id)->call.args, n_before = what == WHAT_DEFAULT_DICT;
    if (torch_n_args(graph, args) != n_before + 1 || depth > MAX_DEPTH)
        return;
    const uint32_t dict = copy_items(torch, torch_arg(graph, args, n_before), what, depth);
    if (dict == 0)
        return;
    if (graph_at(graph, dict)->n > 0)
        put_first(torch, id, PART_ITEMS, dict);
    set_args(torch, id, value_items(graph_at(graph, args)), n_before);
}

/* deque(items), deque(items, length): Python 3 writes deque((), length) and appends. */
static void unfold_deque(struct torch *torch, uint32_t id)
{
    struct graph *graph = torch->graph;
    const uint32_t args = graph_at(graph, id)->call.args, content = torch_arg(graph, args, 0);
    const uint32_t n = torch_n_args(graph, args), n_items = torch_n_args(graph, content);
    if (n == 0 || n > 2 || n_items == 0 || !take_items(graph_at(graph, content)))
        return;
    const uint32_t list =
        new_items(torch, VALUE_LIST, value_items(graph_at(graph, content)), n_items);
    const uint32_t rest[] = {new_items(torch, VALUE_TUPLE, NULL, 0), torch_arg(graph, args, 1)};
    if (torch->has_failed)
        return;
    put_first(torch, id, PART_ELEMENTS, list);
    set_args(torch, id, rest, n == 1 ? 0 : 2);
}

/* Moves the items in the arguments of a call that makes a dict or deque to where later protocols
 * have them: OrderedDict([[key, value]]) becomes OrderedDict() with an item. Calls of other things
 * stay as they are. */
static void unfold_items(struct torch *torch, uint32_t id, unsigned depth)
{
    const struct value *call = graph_at(torch->graph, id);
    const enum torch_what what = torch_what_of(torch->graph, call);
    /* __new__ of these classes ignores its arguments. */
    if (call->form != FORM_REDUCE && call->form != FORM_INST)
        return;
    if (makes_dict(what))
        unfold_dict(torch, id, what, depth);
    else if (what == WHAT_DEQUE)
        unfold_deque(torch, id);
}

/* Returns whether the keys of the dict are texts, no two of which are equal. */
static bool has_names(struct torch *torch, uint32_t dict)
{
    const struct value *value = graph_at(torch->graph, dict);
    for (uint32_t i = 0; i < value->n; i += 2)
        if (graph_at(torch->graph, value_items(value)[i])->kind != VALUE_TEXT)
            return false;
    return value_drop_twins(torch->graph, dict) == 0;
}

/* Makes a dict of the only argument of an unknown call, when that is a list of names and tensors
 * as a subclass of OrderedDict gets it. It remains an argument. */
static void name_items(struct torch *torch, uint32_t id)
{
    struct graph *graph = torch->graph;
    const struct value *call = graph_at(graph, id);
    const uint32_t args = call->call.args;
    const enum torch_what what = torch_what_of(graph, call);
    if (call->form != FORM_REDUCE || torch_n_args(graph, args) != 1 ||
        (what != WHAT_UNKNOWN && what != WHAT_FROZEN_DICT))
        return;
    struct value *list = graph_at(graph, torch_arg(graph, args, 0));
    if ((list->marks & MARK_TENSOR) == 0 || list->kind != VALUE_LIST || !take_items(list) ||
        !has_pairs(graph, list, false))
        return;
    const uint32_t dict = new_dict_of_pairs(torch, list);
    if (dict == 0 || !has_names(torch, dict))
        return;
    graph_at(graph, dict)->form = FORM_PAIRS;
    graph_at(graph, dict)->marks = MARK_SEEN | MARK_TENSOR;
    set_args(torch, id, &dict, 1);
    graph_at(graph, graph_at(graph, id)->call.args)->marks = MARK_SEEN | MARK_TENSOR;
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

struct step {
    uint32_t id, next;
};

struct path {
    struct step *steps;
    size_t n_steps, n_room;
    uint64_t n_twins;   /* duplicate pairs that were removed from dicts */
    uint64_t n_tensors; /* calls that make a tensor, each counted once */
};

/* Marks all values on the path; those above a marked one are marked already. */
static void mark_path(struct path *path, struct graph *graph)
{
    for (size_t i = path->n_steps; i-- > 0;) {
        struct value *value = graph_at(graph, path->steps[i].id);
        if ((value->marks & MARK_TENSOR) != 0)
            return;
        value->marks |= MARK_TENSOR;
    }
}

static bool is_tensor(const struct torch *torch, uint32_t id, const struct value *value)
{
    if (value->kind == VALUE_PERSISTENT)
        return torch_is_storage(torch->graph, id) ||
               (torch->find_tensor != NULL && torch->is_tensor(torch, id));
    const enum torch_what what = torch_what_of(torch->graph, value);
    const struct torch_global *inner;
    switch (what) {
    case WHAT_UNKNOWN:
        return false;
    case WHAT_NP_RECONSTRUCT:
    case WHAT_NP_FROMBUFFER:
        return torch_array_has_bytes(torch->graph, value);
    case WHAT_REBUILD_TYPE: /* its content is a tensor, unless it has no bytes */
        inner = torch_global_of(torch->graph, torch_arg(torch->graph, value->call.args, 0));
        return inner != NULL &&
               (inner->what == WHAT_REBUILD_META || inner->what == WHAT_REBUILD_WRAPPER);
    case WHAT_REBUILD_SPARSE:
    case WHAT_REBUILD_NESTED:
    case WHAT_REBUILD_NJT:
    case WHAT_REBUILD_FROM_ARRAY:
        return false;
    default:
        return what <= WHAT_LAST_TENSOR;
    }
}

static void mark_value(struct torch *torch, struct path *path, uint32_t id)
{
    struct graph *graph = torch->graph;
    struct value *value = graph_at(graph, id);
    if ((value->marks & MARK_SEEN) != 0) {
        if ((value->marks & MARK_TENSOR) != 0)
            mark_path(path, graph);
        return;
    }
    value->marks |= MARK_SEEN;
    if (value->kind == VALUE_DICT) {
        const int64_t n = value_drop_twins(graph, id);
        torch->has_failed = torch->has_failed || n < 0;
        path->n_twins += (uint64_t)n;
    }
    if (value->kind == VALUE_CALL) {
        unfold_items(torch, id, 0);
        torch_array_note_data(torch, value);
    }
    if (value->kind < VALUE_LIST || value->kind == VALUE_GLOBAL)
        return;
    if (array_reserve(&path->steps, sizeof(*path->steps), path->n_steps, 1, &path->n_room) < 0) {
        torch->has_failed = true;
        return;
    }
    path->steps[path->n_steps++] = (struct step){id, 0};
    if (is_tensor(torch, id, value)) {
        path->n_tensors += value->kind == VALUE_CALL;
        mark_path(path, graph);
    }
}

/* Returns the next child of a value that was not visited yet; 0: none. */
static uint32_t next_child(const struct graph *graph, struct step *step)
{
    const struct value *value = graph_at(graph, step->id);
    if (!value_has_items(value))
        return value_child(graph, step->id, step->next++);
    const uint32_t *items = value_items(value);
    while (step->next < value->n) {
        const uint32_t id = items[step->next++];
        if ((graph_at(graph, id)->marks & (MARK_SEEN | MARK_TENSOR)) != MARK_SEEN)
            return id;
    }
    return 0;
}

/* Makes room for all that will be listed: growing step by step takes more memory. */
static int reserve_listing(struct torch *torch, uint64_t n_tensors)
{
    uint64_t n = torch->catalog->n_tensors + n_tensors;
    if (n > torch->limits->tensors || n > UINT32_MAX)
        n = torch->catalog->n_tensors; /* an error later, unless they are wrappers */
    if (catalog_reserve(torch->catalog, (size_t)n) < 0 ||
        catalog_reserve_places(torch->catalog, torch->catalog->values.n_places + (uint32_t)n + 64) <
            0)
        return -ENOMEM;
    return names_reserve(&torch->names, (uint32_t)n);
}

int torch_marks_set(struct torch *torch, uint32_t root)
{
    struct path path = {0};
    mark_value(torch, &path, root);
    while (!torch->has_failed && path.n_steps > 0) {
        struct step *step = &path.steps[path.n_steps - 1];
        const uint32_t id = step->id, child = next_child(torch->graph, step);
        if (child != 0) {
            mark_value(torch, &path, child);
            continue;
        }
        path.n_steps--;
        if (graph_at(torch->graph, id)->kind == VALUE_CALL)
            name_items(torch, id);
    }
    free(path.steps);
    if (!torch->has_failed && path.n_twins > 0 &&
        catalog_add_finding(
            torch->catalog, WFS_LOW, "%s; the last value counts, as in Python",
            wfs_count_as(path.n_twins, "dict key is a duplicate", "dict keys are duplicates")
                .text) < 0)
        torch->has_failed = true;
    return torch->has_failed || reserve_listing(torch, path.n_tensors) < 0
               ? wfs_fail_memory(torch->err)
               : 0;
}

const char *const torch_owned[TORCH_N_OWNED] = {"_parameters", "_buffers", "_modules"};

/* Marks the items of a dict or OrderedDict, unless it was done before. */
static void mark_items(struct graph *graph, uint32_t id)
{
    if (id != 0 && graph_at(graph, id)->kind == VALUE_CALL)
        id = value_part(graph, graph_at(graph, id), PART_ITEMS);
    struct value *dict = id == 0 ? NULL : graph_at(graph, id);
    if (dict == NULL || dict->kind != VALUE_DICT || (dict->marks & MARK_OWNED) != 0)
        return;
    dict->marks |= MARK_OWNED;
    for (uint32_t i = 1; i < dict->n; i += 2)
        graph_at(graph, value_items(dict)[i])->marks |= MARK_OWNED;
}

void torch_marks_modules(struct torch *torch)
{
    struct graph *graph = torch->graph;
    while (torch->n_searched < graph->n_values) {
        const uint32_t id = ++torch->n_searched;
        if (graph_at(graph, id)->kind != VALUE_DICT || value_get(graph, id, "_parameters") == 0 ||
            value_get(graph, id, "_modules") == 0)
            continue;
        for (unsigned i = 0; i < TORCH_N_OWNED; i++)
            mark_items(graph, value_get(graph, id, torch_owned[i]));
    }
}
