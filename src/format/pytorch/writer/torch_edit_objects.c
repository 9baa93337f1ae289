/* SPDX-License-Identifier: MIT */
/*
 * Objects that exist as a whole or not at all: tensors with attributes, and composite tensors. One
 * that has lost a tensor, or of which one is renamed, is taken apart, and its rest becomes items of
 * a dict; one that has lost all tensors goes, with its values.
 */
#include "format/pytorch/writer/torch_edit_objects.h"

#include <errno.h>

/* Decides about the scales of a quantized tensor, which needs them; they do not need it. */
static int judge_parts(struct torch_edit *edit, uint32_t i, uint32_t tensor)
{
    struct edit_node *node = &edit->nodes[i];
    if (edit->nodes[tensor].claim == 0)
        node->is_apart = node->has_tensor;
    else if (node->is_short || node->is_torn)
        return torch_edit_fail(edit, edit_name_old(edit, tensor),
                               "it is quantized by channel: keep its scales and zero points under "
                               "its name, or remove all three");
    return 0;
}

/* Decides about an object after everything in it. */
static int judge(struct torch_edit *edit, uint32_t i)
{
    struct edit_node *node = &edit->nodes[i];
    const uint32_t parent = edit->places[i].parent;
    if (node->kind == PLACE_TENSOR) {
        node->is_apart = node->claim == 0 && node->has_tensor;
        node->has_tensor = node->has_tensor || node->claim != 0;
    } else if (torch_edit_is_composed(edit, i)) {
        if (parent != 0 && edit->nodes[parent].kind == PLACE_TENSOR &&
            edit->places[parent].id == edit->places[i].id)
            return judge_parts(edit, i, parent);
        node->is_apart = node->has_tensor && (node->is_short || node->is_torn);
    }
    return 0;
}

/* Passes the decision on to its container. */
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
