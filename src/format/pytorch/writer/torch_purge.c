/* SPDX-License-Identifier: MIT */
/*
 * One pass over the values in the order in which they were made: what a call needs precedes it. A
 * value becomes None where it is, so that everything that refers to it does.
 */
#include "format/pytorch/writer/torch_checkpoint.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>

#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_dangers.h"
#include "format/pytorch/object/torch_marks.h"
#include "format/pytorch/object/torch_storage.h"

struct purge {
    struct wfs_catalog *catalog;
    struct graph graph;
    uint8_t *owned; /* for graph_own */
    uint32_t n_owned;
    bool *is_gone; /* by value */
    bool has_tensors;
    int (*report)(void *ctx, const char *module, const char *name);
    void *ctx;
};

static bool is_gone(const struct purge *purge, uint32_t id)
{
    return id != 0 && purge->is_gone[id];
}

/* Returns whether one of the items goes, as the class in the id of a persistent value does. */
static bool has_gone_item(const struct purge *purge, uint32_t tuple)
{
    for (uint32_t i = 0; i < torch_n_args(&purge->graph, tuple); i++)
        if (is_gone(purge, torch_arg(&purge->graph, tuple, i)))
            return true;
    return false;
}

/* Returns whether a call goes: for what it calls, or with one of its arguments. Bytes that are not
 * a storage may be a checkpoint with any name in it. */
static bool is_unsafe_call(const struct purge *purge, uint32_t id)
{
    const struct value *call = graph_at(&purge->graph, id);
    const uint32_t callable = call->call.callable;
    if (call->form == FORM_EXTENSION || is_gone(purge, callable))
        return true;
    if (torch_what_of(&purge->graph, call) == WHAT_LOAD_FROM_BYTES &&
        torch_storage_at(purge->catalog, id) == NULL)
        return true;
    return has_gone_item(purge, call->call.args);
}

static bool goes(const struct purge *purge, uint32_t id)
{
    const struct value *value = graph_at(&purge->graph, id);
    switch (value->kind) {
    case VALUE_GLOBAL:
        return !torch_is_harmless(&purge->graph, id);
    case VALUE_PERSISTENT:
        return has_gone_item(purge, value->id);
    case VALUE_CALL:
        return is_unsafe_call(purge, id);
    default:
        return false;
    }
}

/* Decides about every value before one is changed. */
static int judge(struct purge *purge)
{
    const uint32_t n = purge->catalog->graph.n_values;
    int code = 0;
    for (uint32_t id = 1; id <= n && code == 0; id++) {
        const struct value *value = graph_at(&purge->graph, id);
        purge->is_gone[id] = goes(purge, id);
        if (!purge->is_gone[id])
            continue;
        if (value->kind == VALUE_GLOBAL)
            code = purge->report(purge->ctx, value->global->module, value->global->name);
        else if (torch_has_tensor(&purge->graph, id))
            purge->has_tensors = true;
    }
    return code;
}

static int replace(struct purge *purge)
{
    const uint32_t n = purge->catalog->graph.n_values;
    for (uint32_t id = 1; id <= n; id++) {
        if (!purge->is_gone[id])
            continue;
        struct value *own = graph_own(&purge->graph, id, purge->owned, purge->n_owned);
        if (own == NULL)
            return -ENOMEM;
        *own = (struct value){.kind = VALUE_NONE};
    }
    return 0;
}

int torch_purge(struct wfs_catalog *catalog,
                int (*report)(void *ctx, const char *module, const char *name), void *ctx)
{
    struct purge purge = {.catalog = catalog, .report = report, .ctx = ctx};
    graph_fork(&purge.graph, &catalog->graph, &catalog->arena);
    autofree bool *gone = calloc((size_t)catalog->graph.n_values + 1, sizeof(*gone));
    purge.is_gone = gone;
    purge.n_owned = purge.graph.n_chunks;
    purge.owned = arena_calloc(&catalog->arena, purge.n_owned, 1);
    if (gone == NULL || purge.owned == NULL)
        return -ENOMEM;
    int code = judge(&purge);
    if (code == 0)
        code = replace(&purge);
    if (code < 0)
        return code;
    catalog->graph = purge.graph;
    catalog->pickle.source = NULL;
    const bool is_empty = catalog->root != 0 && gone[catalog->root];
    catalog->is_object = catalog->is_object && !purge.has_tensors && !is_empty;
    return 0;
}
