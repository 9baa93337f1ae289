/* SPDX-License-Identifier: MIT */
/*
 * Containers with new items. One that has one place is changed in place, so that everything that
 * refers to it sees the change; one with several places is copied.
 */
#include "format/pytorch/writer/torch_edit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The new items of a dict, set or list, malloc'ed. */
struct items {
    uint32_t *ids;
    uint32_t n;
};

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

static uint32_t count_added(const struct torch_edit *edit, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t k = edit->nodes[i].first; k != 0; k = edit->nodes[k].next)
        n += k > edit->n_places || edit->places[k].parent != i;
    return n;
}

/* Replaces one item; those that are gone from a dict become 0. */
static int replace_item(struct torch_edit *edit, uint32_t k, const struct value *value,
                        struct items *items)
{
    const struct edit_node *child = &edit->nodes[k];
    const uint32_t item = edit->places[k].item;
    if (item >= value->n) {
        return child->id == edit->places[k].id
                   ? 0
                   : wfs_fail(edit->plan->err, EINVAL,
                              "'%s' is used in several places of an object: it can only be "
                              "changed in all of them",
                              wfs_quote_n(child->to, child->n_to).text);
    }
    if (!child->is_gone)
        items->ids[item] = child->id;
    else if (value->kind == VALUE_DICT)
        items->ids[item] = 0;
    else if ((items->ids[item] = value_new(&edit->plan->graph, VALUE_NONE)) == 0)
        return wfs_fail_memory(edit->plan->err);
    if (!child->is_gone && child->key != 0)
        items->ids[item - 1] = child->key;
    return 0;
}

/* Checks a tensor that is the key of an item: both must stay, or both must go. */
static int check_key(struct torch_edit *edit, uint32_t k, const struct items *items)
{
    const struct edit_node *child = &edit->nodes[k];
    const uint32_t item = edit->places[k].item;
    if ((items->ids[item] == 0) == (items->ids[item + 1] == 0))
        return 0;
    return torch_edit_fail(
        edit, edit_name_old(edit, k),
        child->is_gone
            ? "it is the key of an item that is still in a dict: keep it, or remove both"
            : "it is the key of an item that is removed from a dict: remove it too, or keep both");
}

static int replace_items(struct torch_edit *edit, uint32_t i, const struct value *value,
                         struct items *items)
{
    const bool is_dict = value->kind == VALUE_DICT;
    int code = 0;
    for (uint32_t k = edit->nodes[i].old_first; k != 0 && code == 0; k = edit->nodes[k].old_next)
        code = replace_item(edit, k, value, items);
    for (uint32_t k = edit->nodes[i].old_first; is_dict && k != 0 && code == 0;
         k = edit->nodes[k].old_next) {
        if (edit->places[k].item < value->n && edit->places[k].item % 2 == 0)
            code = check_key(edit, k, items);
    }
    for (uint32_t k = 1; is_dict && k < value->n; k += 2)
        if (items->ids[k] == 0)
            items->ids[k - 1] = 0;
    return code;
}

static int make_items(struct torch_edit *edit, uint32_t i, const struct value *value,
                      struct items *items)
{
    items->ids = calloc((size_t)value->n + 2 * (size_t)count_added(edit, i) + 1, sizeof(uint32_t));
    if (items->ids == NULL)
        return wfs_fail_memory(edit->plan->err);
    if (value->n > 0)
        memcpy(items->ids, value_items(value), value->n * sizeof(uint32_t));
    const int code = replace_items(edit, i, value, items);
    if (code < 0)
        return code;
    for (uint32_t k = 0; k < value->n; k++)
        if (items->ids[k] != 0)
            items->ids[items->n++] = items->ids[k];
    for (uint32_t k = edit->nodes[i].first; k != 0; k = edit->nodes[k].next) {
        if (k <= edit->n_places && edit->places[k].parent == i)
            continue;
        items->ids[items->n++] = edit->nodes[k].key;
        items->ids[items->n++] = edit->nodes[k].id;
    }
    return 0;
}

static bool is_shared(const struct torch_edit *edit, uint32_t i)
{
    uint32_t n;
    torch_edit_first(edit, i, &n);
    return n > 1;
}

/* Gives the node a new content: in the value that it had, or as a new value. */
static int put_value(struct torch_edit *edit, uint32_t i, uint32_t made)
{
    struct torch_plan *plan = edit->plan;
    if (made == 0)
        return wfs_fail_memory(plan->err);
    if (graph_at(&plan->graph, made)->kind == graph_at(&plan->graph, edit->places[i].id)->kind)
        graph_at(&plan->graph, made)->form = graph_at(&plan->graph, edit->places[i].id)->form;
    if (is_shared(edit, i)) {
        edit->nodes[i].id = made;
        return 0;
    }
    struct value *own = torch_plan_own(plan, edit->places[i].id);
    if (own == NULL)
        return wfs_fail_memory(plan->err);
    *own = *graph_at(&plan->graph, made);
    return 0;
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
    struct items items = {0};
    int code = make_items(edit, i, value, &items);
    const uint32_t made =
        code < 0 ? 0 : value_new_items(graph, (enum value_kind)value->kind, items.ids, items.n);
    free(items.ids);
    if (code < 0)
        return code;
    const int64_t n_twins =
        made != 0 && value->kind == VALUE_DICT ? value_drop_twins(graph, made) : 0;
    if (n_twins > 0)
        return torch_edit_fail(edit, edit_name_end(&edit->nodes[i]),
                               "two of its keys would be equal in Python, like 1 and True");
    if (n_twins < 0)
        return wfs_fail_memory(edit->plan->err);
    return put_value(edit, i, edit->nodes[i].versions == 0 ? made : add_versions(edit, i, made));
}

/* Replaces an item of a list or tuple: a state of an object, or an argument. Returns a copy of it,
 * 0 when the item is not in it. */
static uint32_t replace_in(struct graph *graph, uint32_t id, uint32_t old, uint32_t new)
{
    const struct value *list = id == 0 ? NULL : graph_at(graph, id);
    uint32_t copy = 0;
    for (uint32_t k = 0; list != NULL && value_has_items(list) && k < list->n; k++) {
        if (value_items(list)[k] != old)
            continue;
        copy = value_new_items(graph, (enum value_kind)list->kind, value_items(list), list->n);
        if (copy != 0 && list->n <= 2)
            graph_at(graph, copy)->pair[k] = new;
        else if (copy != 0)
            graph_at(graph, copy)->items[k] = new;
        return copy;
    }
    return copy;
}

/* Makes a dict of what a call without items gets. Returns 0 when out of memory. */
static uint32_t first_items(struct torch_edit *edit, uint32_t i)
{
    struct graph *graph = &edit->plan->graph;
    const uint32_t dict = value_new(graph, VALUE_DICT);
    for (uint32_t k = edit->nodes[i].first; k != 0 && dict != 0; k = edit->nodes[k].next) {
        const uint32_t pair[] = {edit->nodes[k].key, edit->nodes[k].id};
        if ((k > edit->n_places || edit->places[k].parent != i) &&
            value_append(graph, dict, pair, 2) < 0)
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
        uint32_t other = 0;
        if (new == old)
            continue;
        if (edit->places[k].item != PLACE_FIXED)
            other = 0;
        else if (old == items)
            dict = other = new;
        else if ((other = replace_in(graph, states, old, new)) != 0)
            states = other;
        else if ((other = replace_in(graph, args, old, new)) != 0)
            args = other;
        if (other == 0)
            return wfs_fail(edit->plan->err, EINVAL,
                            "'%s' is used in several places of an object: it can only be changed "
                            "in all of them",
                            wfs_quote_n(edit->nodes[k].to, edit->nodes[k].n_to).text);
    }
    if (items == 0 && count_added(edit, i) > 0 && (dict = first_items(edit, i)) == 0)
        return wfs_fail_memory(edit->plan->err);
    const uint32_t parts = value_new(graph, VALUE_PARTS), copy = value_new(graph, VALUE_CALL);
    if (parts == 0 || copy == 0)
        return wfs_fail_memory(edit->plan->err);
    if (call->n != 0)
        *graph_at(graph, parts) = *graph_at(graph, call->n);
    graph_at(graph, parts)->parts.items = dict;
    graph_at(graph, parts)->n = states;
    *graph_at(graph, copy) = *call;
    graph_at(graph, copy)->call.args = args;
    graph_at(graph, copy)->n = parts;
    if (edit->nodes[i].versions != 0 && append_versions(edit, i, copy) < 0)
        return wfs_fail_memory(edit->plan->err);
    return put_value(edit, i, copy);
}

/* Rebuilds a container unless its items are the same. */
static int rebuild(struct torch_edit *edit, uint32_t i)
{
    const struct value *value = graph_at(&edit->plan->graph, edit->places[i].id);
    if (!is_changed(edit, i))
        return 0;
    if (value->kind == VALUE_DICT || value->kind == VALUE_LIST || value->kind == VALUE_TUPLE ||
        value->kind == VALUE_SET)
        return rebuild_items(edit, i);
    return rebuild_call(edit, i);
}

/* Sets the order of the tensors in the new file, for a comparison. */
static int set_order(struct torch_edit *edit)
{
    struct wfs_layout *layout = edit->plan->layout;
    const struct wfs_catalog *catalog = edit->catalog;
    size_t n = 0;
    layout->order = arena_calloc(&layout->arena, catalog->n_tensors, sizeof(*layout->order));
    if (layout->order == NULL)
        return wfs_fail_memory(edit->plan->err);
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
    struct torch_plan *plan = edit->plan;
    const uint32_t dict = torch_plan_dict(plan);
    int code = dict == 0 ? -ENOMEM : 0;
    for (uint32_t k = edit->nodes[edit->shell].first; k != 0 && code == 0;
         k = edit->nodes[k].next) {
        const uint32_t pair[] = {edit->nodes[k].key, edit->nodes[k].id};
        code = value_append_part(&plan->graph, dict, PART_ITEMS, pair, 2);
    }
    if (code == 0 && edit->nodes[edit->shell].versions != 0)
        code = append_versions(edit, edit->shell, dict);
    edit->nodes[edit->shell].id = dict;
    return code < 0 ? wfs_fail_memory(plan->err) : 0;
}

int torch_edit_containers(struct torch_edit *edit)
{
    int code = 0;
    for (uint32_t k = edit->n_walk; k-- > 0 && code == 0;) {
        const uint32_t i = edit->walk[k];
        if (i <= edit->n_places && edit->nodes[i].kind == PLACE_HOLDER)
            code = rebuild(edit, i);
    }
    if (code == 0 && edit->shell != 0)
        code = make_shell(edit);
    if (code < 0)
        return code;
    edit->plan->root = edit->nodes[edit->shell != 0 ? edit->shell : edit->root].id;
    return set_order(edit);
}
