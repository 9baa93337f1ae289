/* SPDX-License-Identifier: MIT */
/*
 * The names of containers at the end: their content votes for a name.
 */
#include "format/pytorch/writer/torch_edit_names.h"

#include <weightfs/cleanup.h>

#include <string.h>

/*
 * Votes for the names of all containers of a leaf: the names that they would have if they had been
 * renamed as a whole. A container in which anything keeps its name stays.
 */
static void vote(struct torch_edit *edit, uint32_t leaf)
{
    const struct edit_name name = edit_name_end(&edit->nodes[leaf]),
                           old = edit_name_old(edit, leaf);
    for (uint32_t i = edit->places[leaf].parent; i != 0; i = edit->places[i].parent) {
        struct edit_node *node = &edit->nodes[i];
        const struct edit_name container = edit_name_old(edit, i);
        if (node->kind != PLACE_HOLDER || container.n_bytes == 0)
            continue;
        const size_t n_rest = old.n_bytes - container.n_bytes;
        if (edit_name_begins(name, container)) {
            node->stays = true;
        } else if (!node->has_vote && name.n_bytes > n_rest &&
                   memcmp(name.bytes + name.n_bytes - n_rest, old.bytes + container.n_bytes,
                          n_rest) == 0) {
            node->has_vote = true;
            node->to = name.bytes;
            node->n_to = (uint32_t)(name.n_bytes - n_rest);
        }
    }
}

static int add_name(struct torch_edit *edit, uint32_t i)
{
    return map_add(&edit->by_name, edit_name_hash(edit_name_end(&edit->nodes[i])), i) < 0
               ? wfs_fail_memory(edit->plan->err)
               : 0;
}

static void keep_name(struct torch_edit *edit, uint32_t i)
{
    edit->nodes[i].to = edit_name_old(edit, i).bytes;
    edit->nodes[i].n_to = (uint32_t)edit_name_old(edit, i).n_bytes;
}

/* Returns whether a proposed name can be given: nothing else has it, and the container is an
 * item that can be renamed. */
static bool can_have_wish(const struct torch_edit *edit, uint32_t i)
{
    const struct edit_node *node = &edit->nodes[i];
    return node->has_vote && !torch_edit_is_taken(edit, i, edit_name_end(node)) &&
           (edit->places[i].item != PLACE_FIXED || node->parent == 0 ||
            torch_edit_is_at_home(edit, i));
}

static int name_container(struct torch_edit *edit, uint32_t i)
{
    struct edit_node *node = &edit->nodes[i];
    if (i == edit->root) {
        node->n_to = 0;
    } else if (edit->places[i].start == PLACE_FIXED && node->parent != 0) {
        node->to = edit->nodes[node->parent].to;
        node->n_to = edit->nodes[node->parent].n_to;
    } else if (can_have_wish(edit, i)) {
        return add_name(edit, i);
    } else {
        keep_name(edit, i);
    }
    return 0;
}

/* Places precede those in them. */
int torch_edit_names(struct torch_edit *edit)
{
    int code =
        map_reserve(&edit->by_name, edit->n_nodes) < 0 ? wfs_fail_memory(edit->plan->err) : 0;
    for (uint32_t i = 1; i <= edit->n_places; i++)
        if (torch_edit_is_shown(edit, i))
            vote(edit, i);
    for (uint32_t i = 1; i <= edit->n_nodes && code == 0; i++) {
        struct edit_node *node = &edit->nodes[i];
        const bool is_container = i <= edit->n_places && node->kind == PLACE_HOLDER;
        if (is_container && node->stays) {
            node->has_vote = false;
            keep_name(edit, i);
        }
        if (is_container ? node->stays && edit->places[i].start != PLACE_FIXED : node->claim != 0)
            code = add_name(edit, i);
    }
    for (uint32_t i = 1; i <= edit->n_places && code == 0; i++)
        code = edit->nodes[i].kind == PLACE_HOLDER ? name_container(edit, i) : 0;
    return code;
}
