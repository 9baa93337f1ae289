/* SPDX-License-Identifier: MIT */
/*
 * From new names to places. A name does not show where one dict ends and the next begins, so the
 * places of what was loaded decide: a thing goes into the innermost dict whose name its own name
 * begins with.
 */
#include "format/pytorch/writer/torch_edit_places.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/writer/torch_edit_moves.h"
#include "format/pytorch/writer/torch_edit_names.h"
#include "format/pytorch/writer/torch_edit_objects.h"

static void set_name(struct edit_node *node, const char *name)
{
    node->to = name;
    node->n_to = (uint32_t)strlen(name);
}

/* Gives a tensor or value its place, or a node after the places. */
static void claim(struct torch_edit *edit, uint32_t place, enum place_kind kind, uint32_t i,
                  const char *name, uint32_t id)
{
    const bool has_place = place != 0 && place <= edit->n_places && edit->nodes[place].claim == 0 &&
                           edit->places[place].kind == kind;
    struct edit_node *node = &edit->nodes[has_place ? place : ++edit->n_nodes];
    node->claim = i + 1;
    node->kind = (uint8_t)kind;
    node->id = id;
    set_name(node, name);
}

/* Lets the values that are attributes of tensors follow them: they get their new names, or go with
 * them. */
static int follow_tensors(struct torch_edit *edit)
{
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        struct edit_node *node = &edit->nodes[i];
        const struct edit_name old = edit_name_old(edit, i);
        if (node->kind != PLACE_VALUE || node->claim == 0 ||
            !edit_name_is_same(edit_name_end(node), old))
            continue;
        const uint32_t holder = torch_edit_holder(edit, i);
        if (holder == 0 || edit->nodes[holder].kind != PLACE_TENSOR)
            continue;
        const struct edit_name before = edit_name_old(edit, holder),
                               end = edit_name_end(&edit->nodes[holder]);
        if (edit->nodes[holder].claim == 0)
            node->claim = 0;
        if (node->claim == 0 || edit_name_is_same(before, end))
            continue;
        const size_t n_rest = old.n_bytes - before.n_bytes;
        char *name = arena_chars(edit->plan->graph.arena, end.n_bytes + n_rest + 1);
        if (name == NULL)
            return wfs_fail_memory(edit->plan->err);
        memcpy(name, end.bytes, end.n_bytes);
        memcpy(name + end.n_bytes, old.bytes + before.n_bytes, n_rest);
        name[end.n_bytes + n_rest] = '\0';
        set_name(node, name);
    }
    return 0;
}

static int claim_all(struct torch_edit *edit)
{
    const struct wfs_catalog *catalog = edit->catalog;
    const size_t n_room = (size_t)edit->n_places + catalog->n_tensors + catalog->n_values + 2;
    if (n_room >= UINT32_MAX)
        return wfs_fail(edit->plan->err, E2BIG, "too many tensors and values");
    edit->nodes = calloc(n_room, sizeof(*edit->nodes));
    edit->walk = calloc(n_room, sizeof(*edit->walk));
    edit->n_same = calloc((size_t)edit->n_places + 1, sizeof(*edit->n_same));
    if (edit->nodes == NULL || edit->walk == NULL || edit->n_same == NULL)
        return wfs_fail_memory(edit->plan->err);
    edit->n_nodes = edit->n_places;
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        edit->nodes[i].kind = edit->places[i].kind;
        edit->nodes[i].id = edit->places[i].id;
        edit->nodes[i].parent = edit->places[i].parent;
    }
    for (uint32_t i = 0; i < catalog->n_tensors; i++)
        claim(edit, catalog->tensors[i].place, PLACE_TENSOR, i, catalog->tensors[i].key, 0);
    for (uint32_t i = 0; i < catalog->n_values; i++)
        claim(edit, catalog->values[i].place, PLACE_VALUE, i, catalog->values[i].name,
              catalog->values[i].id);
    return follow_tensors(edit);
}

static int count_same(struct torch_edit *edit)
{
    if (map_reserve(&edit->by_value, edit->n_places) < 0)
        return wfs_fail_memory(edit->plan->err);
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        if (edit->places[i].kind == PLACE_VALUE && edit->places[i].item == PLACE_FIXED)
            continue;
        uint32_t n, first = torch_edit_first(edit, i, &n);
        const uint32_t id = edit->places[i].id;
        if (first == 0 && map_add(&edit->by_value, hash_bytes(&id, sizeof(id), hash_seed()), i) < 0)
            return wfs_fail_memory(edit->plan->err);
        edit->n_same[first == 0 ? i : first]++;
    }
    return 0;
}

static void append(struct torch_edit *edit, uint32_t i)
{
    struct edit_node *node = &edit->nodes[i], *parent = &edit->nodes[node->parent];
    if (node->parent == 0)
        return;
    if (parent->first == 0)
        parent->first = i;
    else
        edit->nodes[parent->last].next = i;
    parent->last = i;
}

static void link_all(struct torch_edit *edit)
{
    for (uint32_t i = edit->n_places; i > 0; i--) {
        struct edit_node *parent = &edit->nodes[edit->places[i].parent];
        edit->nodes[i].old_next = parent->old_first;
        parent->old_first = i;
    }
    for (uint32_t i = 1; i <= edit->n_places; i++)
        if (!edit->nodes[i].is_gone && i != edit->root)
            append(edit, i);
    /* Moved and new things follow those that stayed. */
    for (uint32_t i = 1; i <= edit->n_nodes; i++)
        if (i > edit->n_places ||
            (edit->nodes[i].is_gone && edit->nodes[i].parent != edit->places[i].parent))
            append(edit, i);
}

/* Lists all nodes from the outside to the inside. */
static int order_all(struct torch_edit *edit)
{
    autofree uint32_t *stack = calloc((size_t)edit->n_nodes + 1, sizeof(*stack));
    uint32_t n = 0;
    if (stack == NULL)
        return wfs_fail_memory(edit->plan->err);
    stack[n++] = edit->shell != 0 ? edit->shell : edit->root;
    while (n > 0) {
        const uint32_t i = stack[--n];
        edit->walk[edit->n_walk++] = i;
        if (edit->nodes[i].next != 0)
            stack[n++] = edit->nodes[i].next;
        if (edit->nodes[i].first != 0)
            stack[n++] = edit->nodes[i].first;
    }
    return 0;
}

/* Returns the loaded root; places of other things can precede it. */
static uint32_t loaded_root(const struct torch_edit *edit)
{
    for (uint32_t i = 1; i <= edit->n_places; i++)
        if (edit->places[i].parent == 0 && edit->nodes[i].kind == PLACE_HOLDER)
            return i;
    return 1;
}

/* Returns whether the names of everything that is left were names in the container, and are now
 * those that they had in it. */
static bool is_whole(const struct torch_edit *edit, uint32_t i)
{
    const struct edit_name container = edit_name_old(edit, i);
    for (uint32_t k = 1; k <= edit->n_places; k++) {
        const struct edit_name old = edit_name_old(edit, k);
        if (edit->nodes[k].claim == 0 || torch_edit_version_dict(edit, k) != 0)
            continue;
        if (!edit_name_begins(old, container) ||
            !edit_name_is_same((struct edit_name){old.bytes + container.n_bytes + 1,
                                                  old.n_bytes - container.n_bytes - 1},
                               edit_name_end(&edit->nodes[k])))
            return false;
    }
    return true;
}

/* Returns whether everything that is left was in the dict and has lost its name, while nothing has
 * another name in its place. */
static bool is_left_alone(const struct torch_edit *edit, uint32_t i)
{
    const struct edit_name container = edit_name_old(edit, i);
    for (uint32_t k = 1; k <= edit->n_places && torch_edit_is_dict(edit, i); k++) {
        const struct edit_name old = edit_name_old(edit, k), end = edit_name_end(&edit->nodes[k]);
        if (edit->nodes[k].claim == 0 || torch_edit_version_dict(edit, k) != 0)
            continue;
        if (!edit_name_begins(old, container) || edit_name_begins(end, container))
            return false;
        const size_t n_rest = old.n_bytes - container.n_bytes;
        if (end.n_bytes > n_rest &&
            memcmp(end.bytes + end.n_bytes - n_rest, old.bytes + container.n_bytes, n_rest) == 0)
            return false;
    }
    return torch_edit_is_dict(edit, i);
}

/* Finds the root: the innermost container whose name was removed from all names in it, so that a
 * part of the file becomes the whole. */
static uint32_t find_root(const struct torch_edit *edit)
{
    const struct wfs_catalog *catalog = edit->catalog;
    if (catalog->n_tensors == 0 || edit->n_nodes > edit->n_places)
        return loaded_root(edit);
    const uint32_t leaf = catalog->tensors[0].place;
    for (uint32_t i = edit->places[leaf].parent; i != 0; i = edit->places[i].parent) {
        if (edit_name_old(edit, i).n_bytes > 0 && edit->nodes[i].kind == PLACE_HOLDER &&
            edit->places[i].start != PLACE_FIXED && (is_whole(edit, i) || is_left_alone(edit, i)))
            return i;
    }
    return loaded_root(edit);
}

int torch_edit_places(struct torch_edit *edit)
{
    int code = claim_all(edit);
    if (code == 0)
        code = count_same(edit);
    if (code < 0)
        return code;
    edit->root = find_root(edit);
    edit->end = edit->root;
    while (edit->end < edit->n_places && edit->places[edit->end + 1].parent >= edit->root)
        edit->end++;
    code = torch_edit_names(edit);
    if (code == 0)
        code = torch_edit_objects(edit);
    if (code == 0)
        code = torch_edit_moves(edit);
    if (code < 0)
        return code;
    link_all(edit);
    return order_all(edit);
}
