/* SPDX-License-Identifier: MIT */
/*
 * Containers with new items. One that has one place is changed in place, so that everything that
 * refers to it sees the change; one with several places is copied.
 */
#include "format/pytorch/writer/torch_edit.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_changed(const struct torch_edit *edit, uint32_t i)
{
    const struct edit_node *node = &edit->nodes[i];
    for (uint32_t k = node->old_first; k != 0; k = edit->nodes[k].old_next) {
        const struct edit_node *child = &edit->nodes[k];
        if (child->is_gone || child->key != 0 || child->id != edit->places[k].id)
            return true;
    }
    return node->versions != 0 || node->last > edit->n_places ||
           (node->last != 0 && edit->places[node->last].parent != i);
}

/* Returns whether a child of a container was not in it before. */
static bool is_added(const struct torch_edit *edit, uint32_t i, uint32_t child)
{
    return child > edit->n_places || edit->places[child].parent != i;
}

static uint32_t count_added(const struct torch_edit *edit, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t k = edit->nodes[i].first; k != 0; k = edit->nodes[k].next)
        n += is_added(edit, i, k);
    return n;
}

static int fail_several(const struct torch_edit *edit, uint32_t k)
{
    return wfs_fail(edit->plan->err, EINVAL,
                    "'%s' is used in several places of an object: it can only be changed in all of "
                    "them",
                    wfs_quote_n(edit->nodes[k].to.bytes, edit->nodes[k].to.n_bytes).text);
}

/* Replaces one item; those that are gone from a dict become 0. */
static int replace_item(struct torch_edit *edit, uint32_t k, const struct value *value,
                        uint32_t *ids)
{
    const struct edit_node *child = &edit->nodes[k];
    const uint32_t item = edit->places[k].item;
    if (item >= value->n)
        return child->id == edit->places[k].id ? 0 : fail_several(edit, k);
    if (child->is_gone) {
        ids[item] = value->kind == VALUE_DICT ? 0 : value_new(&edit->plan->graph, VALUE_NONE);
        return ids[item] == 0 && value->kind != VALUE_DICT ? -ENOMEM : 0;
    }
    ids[item] = child->id;
    if (child->key != 0)
        ids[item - 1] = child->key;
    return 0;
}

/* Replaces all items that were loaded. A tensor that is the key of an item and the item must both
 * stay, or both go. */
static int replace_items(struct torch_edit *edit, uint32_t i, const struct value *value,
                         uint32_t *ids)
{
    const uint32_t first = edit->nodes[i].old_first;
    int code = 0;
    for (uint32_t k = first; k != 0 && code == 0; k = edit->nodes[k].old_next)
        code = replace_item(edit, k, value, ids);
    if (code < 0 || value->kind != VALUE_DICT)
        return code;
    for (uint32_t k = first; k != 0; k = edit->nodes[k].old_next) {
        const uint32_t item = edit->places[k].item;
        if (item < value->n && item % 2 == 0 && (ids[item] == 0) != (ids[item + 1] == 0))
            return torch_edit_fail(
                edit, edit_name_old(edit, k),
                edit->nodes[k].is_gone
                    ? "it is the key of an item that is still in a dict: keep it, or remove both"
                    : "it is the key of an item that is removed from a dict: remove it too, or "
                      "keep both");
    }
    for (uint32_t k = 1; k < value->n; k += 2)
        if (ids[k] == 0)
            ids[k - 1] = 0;
    return 0;
}

/* Gives the node a new content: in the value that it had, or as a new value. */
static int put_value(struct torch_edit *edit, uint32_t i, uint32_t made)
{
    struct torch_plan *plan = edit->plan;
    if (made == 0)
        return -ENOMEM;
    if (graph_at(&plan->graph, made)->kind == graph_at(&plan->graph, edit->places[i].id)->kind)
        graph_at(&plan->graph, made)->form = graph_at(&plan->graph, edit->places[i].id)->form;
    if (torch_edit_is_shared(edit, i)) {
        edit->nodes[i].id = made;
        return 0;
    }
    return torch_plan_become(plan, edit->places[i].id, made);
}

/* Gives an OrderedDict the attribute with its table of versions. The list of its states is copied:
 * others may have it. */
static int append_versions(struct torch_edit *edit, uint32_t i, uint32_t call)
{
    struct graph *graph = &edit->plan->graph;
    const uint32_t states = value_part(graph, graph_at(graph, call), PART_STATES),
                   name = value_new_text(graph, "_metadata", strlen("_metadata"));
    const uint32_t pair[] = {name, edit->nodes[i].versions};
    const uint32_t state = name == 0 ? 0 : value_new_items(graph, VALUE_DICT, pair, 2);
    if (state == 0)
        return -ENOMEM;
    if (states != 0) {
        const struct value *list = graph_at(graph, states);
        const uint32_t copy = value_new_items(graph, VALUE_LIST, value_items(list), list->n);
        if (copy == 0)
            return -ENOMEM;
        graph_at(graph, graph_at(graph, call)->n)->n = copy;
    }
    return value_append_part(graph, call, PART_STATES, &state, 1);
}

/* Makes an OrderedDict with versions from a dict. Returns 0 when out of memory. */
static uint32_t add_versions(struct torch_edit *edit, uint32_t i, uint32_t dict)
{
    struct graph *graph = &edit->plan->graph;
    const struct value *value = dict == 0 ? NULL : graph_at(graph, dict);
    const uint32_t call = value == NULL ? 0 : torch_plan_dict(edit->plan);
    if (call == 0 || value_append_part(graph, call, PART_ITEMS, value_items(value), value->n) < 0 ||
        append_versions(edit, i, call) < 0)
        return 0;
    return call;
}

static int rebuild_items(struct torch_edit *edit, uint32_t i)
{
    struct graph *graph = &edit->plan->graph;
    const struct value *value = graph_at(graph, edit->places[i].id);
    const size_t n_room = (size_t)value->n + 2 * (size_t)count_added(edit, i) + 1;
    autofree uint32_t *ids = calloc(n_room, sizeof(*ids));
    uint32_t n = 0;
    if (ids == NULL)
        return -ENOMEM;
    if (value->n > 0)
        memcpy(ids, value_items(value), value->n * sizeof(*ids));
    const int code = replace_items(edit, i, value, ids);
    if (code < 0)
        return code;
    for (uint32_t k = 0; k < value->n; k++)
        if (ids[k] != 0)
            ids[n++] = ids[k];
    for (uint32_t k = edit->nodes[i].first; k != 0; k = edit->nodes[k].next) {
        if (!is_added(edit, i, k))
            continue;
        ids[n++] = edit->nodes[k].key;
        ids[n++] = edit->nodes[k].id;
    }
    const uint32_t made = value_new_items(graph, (enum value_kind)value->kind, ids, n);
    const int64_t n_twins =
        made != 0 && value->kind == VALUE_DICT ? value_drop_twins(graph, made) : 0;
    if (n_twins > 0)
        return torch_edit_fail(edit, edit->nodes[i].to,
                               "two of its keys would be equal in Python, like 1 and True");
    if (n_twins < 0)
        return -ENOMEM;
    return put_value(edit, i, edit->nodes[i].versions == 0 ? made : add_versions(edit, i, made));
}

/* Replaces an item of a list or tuple: a state of an object, or an argument. Returns a copy of it,
 * 0 when the item is not in it. */
static uint32_t replace_in(struct graph *graph, uint32_t id, uint32_t old, uint32_t new)
{
    const struct value *list = id == 0 ? NULL : graph_at(graph, id);
    const uint32_t n = list != NULL && value_has_items(list) ? list->n : 0;
    uint32_t k = 0;
    while (k < n && value_items(list)[k] != old)
        k++;
    const uint32_t copy =
        k == n ? 0 : value_new_items(graph, (enum value_kind)list->kind, value_items(list), n);
    if (copy != 0)
        (n <= 2 ? graph_at(graph, copy)->pair : graph_at(graph, copy)->items)[k] = new;
    return copy;
}

/* Makes a dict of what a call without items gets. Returns 0 when out of memory. */
static uint32_t first_items(struct torch_edit *edit, uint32_t i)
{
    struct graph *graph = &edit->plan->graph;
    const uint32_t dict = value_new(graph, VALUE_DICT);
    for (uint32_t k = edit->nodes[i].first; k != 0 && dict != 0; k = edit->nodes[k].next) {
        const uint32_t pair[] = {edit->nodes[k].key, edit->nodes[k].id};
        if (is_added(edit, i, k) && value_append(graph, dict, pair, 2) < 0)
            return 0;
    }
    return dict;
}

/* Rebuilds a call of which an argument, the dict or a state is another one now, or which gets its
 * first items. */
static int rebuild_call(struct torch_edit *edit, uint32_t i)
{
    struct graph *graph = &edit->plan->graph;
    const struct value *call = graph_at(graph, edit->places[i].id);
    const uint32_t items = value_part(graph, call, PART_ITEMS);
    uint32_t dict = items, states = value_part(graph, call, PART_STATES), args = call->call.args;
    for (uint32_t k = edit->nodes[i].old_first; k != 0; k = edit->nodes[k].old_next) {
        const uint32_t old = edit->places[k].id, new = edit->nodes[k].id;
        if (new == old)
            continue;
        if (edit->places[k].item != PLACE_FIXED)
            return fail_several(edit, k);
        if (old == items) {
            dict = new;
            continue;
        }
        const uint32_t state = replace_in(graph, states, old, new),
                       arg = state != 0 ? 0 : replace_in(graph, args, old, new);
        if (state == 0 && arg == 0)
            return fail_several(edit, k);
        states = state != 0 ? state : states;
        args = arg != 0 ? arg : args;
    }
    if (items == 0 && count_added(edit, i) > 0) {
        dict = first_items(edit, i);
        if (dict == 0)
            return -ENOMEM;
    }
    const uint32_t parts = value_new(graph, VALUE_PARTS), copy = value_new(graph, VALUE_CALL);
    if (parts == 0 || copy == 0)
        return -ENOMEM;
    if (call->n != 0)
        *graph_at(graph, parts) = *graph_at(graph, call->n);
    graph_at(graph, parts)->parts.items = dict;
    graph_at(graph, parts)->n = states;
    *graph_at(graph, copy) = *call;
    graph_at(graph, copy)->call.args = args;
    graph_at(graph, copy)->n = parts;
    if (edit->nodes[i].versions != 0 && append_versions(edit, i, copy) < 0)
        return -ENOMEM;
    return put_value(edit, i, copy);
}

/* Sets the order of the tensors in the new file, for a comparison. */
static int set_order(struct torch_edit *edit)
{
    struct wfs_layout *layout = edit->plan->layout;
    const struct wfs_catalog *catalog = edit->catalog;
    size_t n = 0;
    layout->order = arena_calloc(&layout->arena, catalog->n_tensors, sizeof(*layout->order));
    if (layout->order == NULL)
        return -ENOMEM;
    for (uint32_t k = 0; k < edit->n_walk; k++) {
        const struct edit_node *node = &edit->nodes[edit->walk[k]];
        if (node->kind == PLACE_TENSOR && node->claim != 0 && n < catalog->n_tensors)
            layout->order[n++] = &catalog->tensors[node->claim - 1];
    }
    return n == catalog->n_tensors
               ? 0
               : wfs_fail(edit->plan->err, EIO, "internal error: %zu of %s have a place", n,
                          wfs_count(catalog->n_tensors, "tensor").text);
}

/* Fills the new dict in the place of the root. */
static int make_shell(struct torch_edit *edit)
{
    struct edit_node *shell = &edit->nodes[edit->shell];
    shell->id = torch_plan_dict(edit->plan);
    int code = shell->id == 0 ? -ENOMEM : 0;
    for (uint32_t k = shell->first; k != 0 && code == 0; k = edit->nodes[k].next) {
        const uint32_t pair[] = {edit->nodes[k].key, edit->nodes[k].id};
        code = value_append_part(&edit->plan->graph, shell->id, PART_ITEMS, pair, 2);
    }
    if (code == 0 && shell->versions != 0)
        code = append_versions(edit, edit->shell, shell->id);
    return code < 0 ? -ENOMEM : 0;
}

int torch_edit_containers(struct torch_edit *edit)
{
    int code = 0;
    for (uint32_t k = edit->n_walk; k-- > 0 && code == 0;) {
        const uint32_t i = edit->walk[k];
        if (i <= edit->n_places && edit->nodes[i].kind == PLACE_HOLDER && is_changed(edit, i))
            code = value_has_items(graph_at(&edit->plan->graph, edit->places[i].id))
                       ? rebuild_items(edit, i)
                       : rebuild_call(edit, i);
    }
    if (code == 0 && edit->shell != 0)
        code = make_shell(edit);
    if (code < 0)
        return code;
    edit->plan->root = edit->nodes[edit->shell != 0 ? edit->shell : edit->root].id;
    return set_order(edit);
}
