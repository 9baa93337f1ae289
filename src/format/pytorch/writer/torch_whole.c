/* SPDX-License-Identifier: MIT */
/*
 * Objects that are whole or not at all: tensors with attributes, and what is made of several
 * tensors. One that has lost a tensor, or of which one is called otherwise, is taken apart, and
 * what is left of it becomes items of a dict; one that has lost all of them goes, with its values.
 */
#include <errno.h>

#include "format/pytorch/writer/torch_edit.h"

static const struct value *value_at(const struct torch_edit *edit, uint32_t i)
{
    return graph_at(&edit->plan->graph, edit->places[i].id);
}

static bool is_wrapper(const struct graph *graph, const struct value *value)
{
    if (torch_what_of(graph, value) != WHAT_REBUILD_TYPE)
        return false;
    const struct torch_global *inner =
        torch_global_of(graph, torch_arg(graph, value->call.args, 0));
    return inner != NULL && inner->what == WHAT_REBUILD_WRAPPER;
}

/* Is it made of several? */
static bool is_composed(const struct torch_edit *edit, uint32_t i)
{
    const struct graph *graph = &edit->plan->graph;
    const char *name;
    return edit->nodes[i].kind == PLACE_HOLDER && value_at(edit, i)->kind == VALUE_CALL &&
           (torch_part(graph, value_at(edit, i), 0, &name) != 0 ||
            is_wrapper(graph, value_at(edit, i)));
}

bool torch_edit_is_object(const struct torch_edit *edit, uint32_t i)
{
    return i <= edit->n_places && (edit->nodes[i].kind == PLACE_TENSOR || is_composed(edit, i));
}

uint32_t torch_edit_holder(const struct torch_edit *edit, uint32_t i)
{
    i = edit->places[i].parent;
    while (i != 0 && i != edit->root && edit->places[i].start == PLACE_FIXED &&
           !torch_edit_is_object(edit, i))
        i = edit->places[i].parent;
    return i;
}

/* A quantized tensor cannot be without its scales; they can without it. */
static int judge_parts(struct torch_edit *edit, uint32_t i, uint32_t tensor)
{
    struct edit_node *node = &edit->nodes[i];
    if (edit->nodes[tensor].claim == 0)
        node->is_apart = node->has_tensor;
    else if (node->is_short || node->is_torn)
        return torch_edit_fail(edit, edit_name_old(edit, tensor),
                               "it is quantized by channel: keep its scales and zero points with "
                               "it and called after it, or remove all three");
    return 0;
}

/* Everything in it has been looked at. */
static int judge(struct torch_edit *edit, uint32_t i)
{
    struct edit_node *node = &edit->nodes[i];
    const uint32_t parent = edit->places[i].parent;
    if (node->kind == PLACE_TENSOR) {
        node->is_apart = node->claim == 0 && node->has_tensor;
        node->has_tensor = node->has_tensor || node->claim != 0;
    } else if (is_composed(edit, i)) {
        if (parent != 0 && edit->nodes[parent].kind == PLACE_TENSOR &&
            edit->places[parent].id == edit->places[i].id)
            return judge_parts(edit, i, parent);
        node->is_apart = node->has_tensor && (node->is_short || node->is_torn);
    }
    return 0;
}

/* Tells what it is in how it fares. */
static void tell(struct torch_edit *edit, uint32_t i)
{
    const struct edit_node *node = &edit->nodes[i];
    const struct catalog_place *place = &edit->places[i];
    const uint32_t holder = torch_edit_holder(edit, i);
    const bool is_part = place->start != PLACE_FIXED && i != edit->root;
    edit->nodes[place->parent].has_tensor =
        edit->nodes[place->parent].has_tensor || node->has_tensor;
    if (is_part && !node->has_tensor && torch_edit_is_object(edit, i))
        edit->nodes[holder].is_short = true;
    if (is_part && node->has_tensor && (node->is_apart || !torch_edit_is_at_home(edit, i)))
        edit->nodes[holder].is_torn = true;
}

int torch_edit_objects(struct torch_edit *edit)
{
    int code = 0;
    for (uint32_t i = edit->n_places; i >= 1 && code == 0; i--) {
        code = judge(edit, i);
        if (code == 0 && edit->places[i].parent != 0)
            tell(edit, i);
    }
    return code;
}
