/* SPDX-License-Identifier: MIT */
/*
 * Which values have tensors in them: one pass over the graph, each value once, with a stack of its
 * own.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "format/torch.h"

struct step {
    uint32_t id, next;
};

struct path {
    struct step *steps;
    size_t n_steps, n_room;
};

static int enter(struct path *path, struct graph *graph, uint32_t id)
{
    if (path->n_steps == path->n_room) {
        const size_t n_room = path->n_room == 0 ? 256 : path->n_room * 2;
        struct step *steps = reallocarray(path->steps, n_room, sizeof(*steps));
        if (steps == NULL)
            return -ENOMEM;
        path->steps = steps;
        path->n_room = n_room;
    }
    path->steps[path->n_steps++] = (struct step){id, 0};
    graph_at(graph, id)->marks |= MARK_SEEN;
    return 0;
}

/* All values on the path; those above a marked one are marked already. */
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
        return torch_is_array(torch->graph, value);
    case WHAT_REBUILD_TYPE: /* what it is made of is one, unless it has no bytes */
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

static int visit(struct torch *torch, struct path *path, uint32_t id, uint64_t *n_twins)
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
        *n_twins += (uint64_t)n;
    }
    const bool is_leaf = value->kind < VALUE_LIST || value->kind == VALUE_GLOBAL;
    if (is_leaf) {
        value->marks |= MARK_SEEN;
        return 0;
    }
    if (enter(path, graph, id) < 0)
        return -ENOMEM;
    if (is_tensor(torch, id, value))
        mark_path(path, graph);
    return 0;
}

int torch_mark(struct torch *torch, uint32_t root)
{
    struct path path = {0};
    uint64_t n_twins = 0;
    int code = visit(torch, &path, root, &n_twins);
    while (code == 0 && path.n_steps > 0) {
        struct step *step = &path.steps[path.n_steps - 1];
        const uint32_t child = value_child(torch->graph, step->id, step->next++);
        if (child == 0)
            path.n_steps--;
        else
            code = visit(torch, &path, child, &n_twins);
    }
    free(path.steps);
    if (code == 0 && n_twins > 0)
        code = catalog_add_finding(torch->catalog, WFS_LOW,
                                   "%llu dict keys stand twice; the last one counts, as in Python",
                                   (unsigned long long)n_twins);
    return code < 0 ? wfs_fail_memory(torch->err) : 0;
}
