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

#include "format/core/layout.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_marks.h"
#include "format/pytorch/object/torch_storage.h"
#include "format/pytorch/writer/torch_edit.h"
#include "format/pytorch/writer/torch_plan.h"

/* Adds an item to the root. The text of its key is not copied. */
static int add_item(struct torch_plan *plan, const char *key, uint32_t value)
{
    const uint32_t pair[] = {value == 0 ? 0 : value_new(&plan->graph, VALUE_TEXT), value};
    if (pair[0] == 0)
        return -ENOMEM;
    graph_at(&plan->graph, pair[0])->text = key;
    graph_at(&plan->graph, pair[0])->n = (uint32_t)strlen(key);
    return value_append_part(&plan->graph, plan->root, PART_ITEMS, pair, 2) < 0 ? -ENOMEM : 0;
}

/* Makes room for a note about each value of the graph. */
static int reserve_notes(struct torch_plan *plan)
{
    plan->n_tensors = plan->wants_tensors ? plan->graph.n_values + 1 : 0;
    plan->tensors = calloc((size_t)plan->n_tensors + 1, sizeof(*plan->tensors));
    return plan->tensors == NULL ? -ENOMEM : 0;
}

static int add_tensors(struct torch_plan *plan)
{
    const struct wfs_catalog *catalog = plan->catalog;
    autofree uint32_t *ids = calloc(catalog->n_tensors + 1, sizeof(*ids));
    int code = ids == NULL ? -ENOMEM : 0;
    for (size_t i = 0; i < catalog->n_tensors && code == 0; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        ids[i] = torch_record_call(plan, tensor, 0);
        code = add_item(plan, tensor->key, ids[i]);
    }
    if (code == 0)
        code = reserve_notes(plan);
    for (size_t i = 0; i < catalog->n_tensors && plan->wants_tensors && code == 0; i++)
        plan->tensors[ids[i]] = (uint32_t)i + 1;
    return code;
}

static int make_flat(struct torch_plan *plan)
{
    const struct wfs_catalog *catalog = plan->catalog;
    int code = 0;
    if (catalog->n_tensors >= UINT32_MAX / 8)
        return wfs_fail(plan->err, E2BIG, "too many tensors: %zu", catalog->n_tensors);
    for (size_t i = 0; code == 0 && i < catalog->n_tensors; i++)
        code =
            storable_check_tensor(plan->layout->format, wfs_catalog_tensor(catalog, i), plan->err);
    if (code < 0)
        return code;
    plan->root = torch_plan_dict(plan);
    code = plan->root == 0 ? -ENOMEM : add_tensors(plan);
    /* Scalars of a Burnpack and new values: those that are left when they were made to fit. */
    for (size_t i = 0; i < catalog->values.n && code == 0; i++)
        code = add_item(plan, catalog->values.list[i].name, catalog->values.list[i].id);
    return code;
}

static int make_edited(struct torch_plan *plan)
{
    const struct wfs_catalog *catalog = plan->catalog;
    cleanup(torch_edit_done) struct torch_edit edit = {.plan = plan,
                                                       .catalog = catalog,
                                                       .places = catalog->values.places,
                                                       .n_places = catalog->values.n_places};
    int code = torch_edit_places(&edit);
    if (code == 0)
        code = torch_edit_tensors(&edit);
    if (code == 0)
        code = torch_edit_versions(&edit);
    if (code == 0)
        code = torch_edit_containers(&edit);
    if (code == 0)
        code = reserve_notes(plan);
    for (uint32_t i = 1; i <= edit.n_nodes && plan->wants_tensors && code == 0; i++) {
        const struct edit_node *node = &edit.nodes[i];
        if (node->kind == PLACE_TENSOR && node->claim != 0)
            plan->tensors[node->id] = node->claim;
    }
    return code;
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
    graph_fork(&plan->graph, &catalog->values.graph, arena);
    plan->n_owned = plan->graph.n_chunks;
    plan->owned = arena_calloc(arena, plan->n_owned, 1);
    plan->of_storages = arena_calloc(arena, catalog->own->n_storages, sizeof(*plan->of_storages));
    int code = -ENOMEM;
    if (plan->owned != NULL && plan->of_storages != NULL)
        code = catalog->values.is_object && catalog->values.root != 0 ? make_edited(plan)
                                                                      : make_flat(plan);
    return code == -ENOMEM ? wfs_fail_memory(plan->err) : code;
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
