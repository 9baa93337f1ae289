/* SPDX-License-Identifier: MIT */
/*
 * Two kinds of checkpoints: a loaded one with other names and everything else kept, or a flat
 * OrderedDict of tensors.
 */
#include "format/pytorch/writer/torch_checkpoint.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/core/storable.h"
#include "format/pytorch/writer/torch_edit.h"
#include "format/pytorch/writer/torch_layout.h"

static int check_tensors(const struct wfs_format *format, const struct wfs_catalog *catalog,
                         struct wfs_error *err)
{
    int code = catalog->n_tensors < UINT32_MAX / 8
                   ? 0
                   : wfs_fail(err, E2BIG, "too many tensors: %zu", catalog->n_tensors);
    for (size_t i = 0; code == 0 && i < catalog->n_tensors; i++)
        code = storable_check_tensor(format, &catalog->tensors[i], err);
    return code;
}

/* Makes a text value of a key, without a copy. */
static uint32_t key_of(struct torch_plan *plan, const char *key)
{
    const uint32_t id = value_new(&plan->graph, VALUE_TEXT);
    if (id != 0) {
        graph_at(&plan->graph, id)->text = key;
        graph_at(&plan->graph, id)->n = (uint32_t)strlen(key);
    }
    return id;
}

static int add_item(struct torch_plan *plan, const char *key, uint32_t value)
{
    const uint32_t pair[] = {value == 0 ? 0 : key_of(plan, key), value};
    if (pair[0] == 0 || value_append_part(&plan->graph, plan->root, PART_ITEMS, pair, 2) < 0)
        return wfs_fail_memory(plan->err);
    return 0;
}

/* Makes room for a note about each value of the graph. */
static int reserve_notes(struct torch_plan *plan)
{
    const uint32_t n = plan->wants_tensors ? plan->graph.n_values + 1 : 1;
    uint32_t *grown = realloc(plan->tensors, (size_t)n * sizeof(*grown));
    if (grown == NULL)
        return wfs_fail_memory(plan->err);
    memset(grown + plan->n_tensors, 0, (size_t)(n - plan->n_tensors) * sizeof(*grown));
    plan->tensors = grown;
    plan->n_tensors = n;
    return 0;
}

static int add_tensors(struct torch_plan *plan)
{
    const struct wfs_catalog *catalog = plan->catalog;
    autofree uint32_t *ids = calloc(catalog->n_tensors + 1, sizeof(*ids));
    struct torch_view view;
    if (ids == NULL)
        return wfs_fail_memory(plan->err);
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = &catalog->tensors[i];
        if (torch_record_view(plan, tensor, 0, &view) < 0)
            return wfs_fail_memory(plan->err);
        ids[i] = torch_spelling_call(plan, tensor, &view);
        const int code = add_item(plan, tensor->key, ids[i]);
        if (code < 0)
            return code;
    }
    if (reserve_notes(plan) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < catalog->n_tensors && plan->wants_tensors; i++)
        plan->tensors[ids[i]] = (uint32_t)i + 1;
    return 0;
}

/* Adds scalars of a Burnpack and new values: those that are left when they were made to fit. */
static int add_values(struct torch_plan *plan)
{
    const struct wfs_catalog *catalog = plan->catalog;
    int code = 0;
    for (size_t i = 0; i < catalog->n_values && code == 0; i++)
        code = add_item(plan, catalog->values[i].name, catalog->values[i].id);
    return code;
}

static int make_flat(struct torch_plan *plan)
{
    int code = check_tensors(plan->layout->format, plan->catalog, plan->err);
    if (code < 0)
        return code;
    plan->root = torch_plan_dict(plan);
    if (plan->root == 0)
        return wfs_fail_memory(plan->err);
    code = add_tensors(plan);
    return code < 0 ? code : add_values(plan);
}

static int note_tensors(const struct torch_edit *edit)
{
    struct torch_plan *plan = edit->plan;
    if (reserve_notes(plan) < 0)
        return -ENOMEM;
    for (uint32_t i = 1; i <= edit->n_nodes; i++) {
        const struct edit_node *node = &edit->nodes[i];
        if (node->kind == PLACE_TENSOR && node->claim != 0 && plan->wants_tensors)
            plan->tensors[node->id] = node->claim;
    }
    return 0;
}

static int make_edited(struct torch_plan *plan)
{
    const struct wfs_catalog *catalog = plan->catalog;
    cleanup(torch_edit_done) struct torch_edit edit = {
        .plan = plan, .catalog = catalog, .places = catalog->places, .n_places = catalog->n_places};
    int code = torch_edit_places(&edit);
    if (code == 0)
        code = torch_edit_tensors(&edit);
    if (code == 0)
        code = torch_edit_versions(&edit);
    if (code == 0)
        code = torch_edit_containers(&edit);
    return code < 0 ? code : note_tensors(&edit);
}

void torch_checkpoint_done(struct torch_plan *plan)
{
    const int saved = errno;
    map_done(&plan->by_range);
    free(plan->records);
    free(plan->order);
    free(plan->tensors);
    errno = saved;
}

int torch_checkpoint_graph(struct torch_plan *plan)
{
    const struct wfs_catalog *catalog = plan->catalog;
    struct arena *arena = &plan->layout->arena;
    graph_fork(&plan->graph, &catalog->graph, arena);
    plan->n_owned = plan->graph.n_chunks;
    plan->owned = arena_calloc(arena, plan->n_owned, 1);
    plan->of_storages = arena_calloc(arena, catalog->n_storages, sizeof(*plan->of_storages));
    if (plan->owned == NULL || plan->of_storages == NULL)
        return wfs_fail_memory(plan->err);
    return catalog->is_object && catalog->root != 0 ? make_edited(plan) : make_flat(plan);
}

int torch_checkpoint_plan_in(const char *folder, const struct wfs_catalog *catalog,
                             struct wfs_layout *layout, struct wfs_error *err)
{
    cleanup(torch_checkpoint_done) struct torch_plan plan = {
        .catalog = catalog, .layout = layout, .err = err, .folder = folder};
    const int code = torch_checkpoint_graph(&plan);
    return code < 0 ? code : torch_layout_make(&plan);
}

int torch_checkpoint_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                          struct wfs_error *err)
{
    return torch_checkpoint_plan_in("archive", catalog, layout, err);
}
