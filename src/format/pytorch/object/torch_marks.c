/* SPDX-License-Identifier: MIT */
/*
 * One pass over the graph, each value once, with a stack of its own. On the way the items of
 * containers get where they are looked for, however the pickle spells them. Another pass finds
 * modules.
 */
#include "format/pytorch/object/torch_marks.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>

#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_array.h"
#include "format/pytorch/object/torch_container.h"
#include "format/pytorch/object/torch_global.h"
#include "format/pytorch/object/torch_storage_id.h"

struct step {
    uint32_t id, next;
};

struct path {
    struct step *steps;
    size_t n_steps, n_room;
    uint64_t n_twins;   /* duplicate pairs that were removed from dicts */
    uint64_t n_tensors; /* calls that make a tensor, each counted once */
};

static int enter(struct path *path, struct graph *graph, uint32_t id)
{
    if (array_reserve(&path->steps, sizeof(*path->steps), path->n_steps, 1, &path->n_room) < 0)
        return -ENOMEM;
    path->steps[path->n_steps++] = (struct step){id, 0};
    graph_at(graph, id)->marks |= MARK_SEEN;
    return 0;
}

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

static bool is_absent(const struct graph *graph, const struct value *call)
{
    const struct torch_global *inner = torch_global_of(graph, torch_arg(graph, call->call.args, 0));
    return inner != NULL &&
           (inner->what == WHAT_REBUILD_META || inner->what == WHAT_REBUILD_WRAPPER);
}

static bool is_tensor(const struct torch *torch, uint32_t id, const struct value *value)
{
    if (value->kind == VALUE_PERSISTENT)
        return torch_is_storage(torch->graph, id) ||
               (torch->find_tensor != NULL && torch->is_tensor(torch, id));
    switch (torch_what_of(torch->graph, value)) {
    case WHAT_UNKNOWN:
        return false;
    case WHAT_NP_RECONSTRUCT:
    case WHAT_NP_FROMBUFFER:
        return torch_array_has_bytes(torch->graph, value);
    case WHAT_REBUILD_TYPE: /* its content is a tensor, unless it has no bytes */
        return is_absent(torch->graph, value);
    case WHAT_REBUILD_SPARSE:
    case WHAT_REBUILD_NESTED:
    case WHAT_REBUILD_NJT:
    case WHAT_REBUILD_FROM_ARRAY:
        return false;
    default:
        return torch_what_of(torch->graph, value) <= WHAT_LAST_TENSOR;
    }
}

static int visit(struct torch *torch, struct path *path, uint32_t id)
{
    struct graph *graph = torch->graph;
    struct value *value = graph_at(graph, id);
    if ((value->marks & MARK_SEEN) != 0) {
        if ((value->marks & MARK_TENSOR) != 0)
            mark_path(path, graph);
        return 0;
    }
    if (value->kind == VALUE_DICT) {
        const int64_t n = value_drop_twins(graph, id);
        if (n < 0)
            return -ENOMEM;
        path->n_twins += (uint64_t)n;
    }
    if (value->kind == VALUE_CALL && torch_container_unfold(torch, id) < 0)
        return -ENOMEM;
    if (value->kind == VALUE_CALL)
        torch_array_note_data(torch, value);
    const bool is_leaf = value->kind < VALUE_LIST || value->kind == VALUE_GLOBAL;
    if (is_leaf) {
        value->marks |= MARK_SEEN;
        return 0;
    }
    if (enter(path, graph, id) < 0)
        return -ENOMEM;
    if (is_tensor(torch, id, value)) {
        path->n_tensors += value->kind == VALUE_CALL;
        mark_path(path, graph);
    }
    return 0;
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

/* Leaves a value whose content was visited. */
static int leave(struct torch *torch, struct path *path)
{
    const uint32_t id = path->steps[--path->n_steps].id;
    return graph_at(torch->graph, id)->kind == VALUE_CALL ? torch_container_name(torch, id) : 0;
}

/* Makes room for all that will be listed: growing step by step takes more memory. */
static int reserve(struct torch *torch, uint64_t n_tensors)
{
    uint64_t n = torch->catalog->n_tensors + n_tensors;
    if (n > torch->limits->tensors || n > UINT32_MAX)
        n = torch->catalog->n_tensors; /* an error later, unless they are wrappers */
    if (catalog_reserve(torch->catalog, (size_t)n) < 0 ||
        catalog_reserve_places(torch->catalog, torch->catalog->n_places + (uint32_t)n + 64) < 0)
        return -ENOMEM;
    return names_reserve(&torch->names, (uint32_t)n);
}

int torch_marks_set(struct torch *torch, uint32_t root)
{
    struct path path = {0};
    int code = visit(torch, &path, root);
    while (code == 0 && path.n_steps > 0) {
        const uint32_t child = next_child(torch->graph, &path.steps[path.n_steps - 1]);
        code = child == 0 ? leave(torch, &path) : visit(torch, &path, child);
    }
    free(path.steps);
    if (code == 0 && path.n_twins > 0)
        code = catalog_add_finding(
            torch->catalog, WFS_FINDING_PT_KEY_DUPLICATE, "%s; the last value counts, as in Python",
            wfs_count_as(path.n_twins, "dict key is a duplicate", "dict keys are duplicates").text);
    if (code == 0)
        code = reserve(torch, path.n_tensors);
    return code < 0 ? wfs_fail_memory(torch->err) : 0;
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
