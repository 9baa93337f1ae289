/* SPDX-License-Identifier: MIT */
/*
 * From new names to places. A name does not show where one dict ends and the next begins, so the
 * places of what was loaded decide: renamed and new things go into the innermost dict whose name
 * their own name begins with. When the root cannot take them, a new dict is put around it, or in
 * its place.
 */
#include "format/pytorch/writer/torch_edit.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/torch_call.h"

/* ---- moves ---- */

/* Returns whether its holder is taken apart. */
static bool is_loose(const struct torch_edit *edit, uint32_t i)
{
    return edit->nodes[torch_edit_holder(edit, i)].is_apart;
}

static bool can_take(const struct torch_edit *edit, uint32_t i)
{
    const struct graph *graph = &edit->plan->graph;
    const struct value *value = graph_at(graph, edit->places[i].id);
    if (edit->nodes[i].kind != PLACE_HOLDER || is_loose(edit, i))
        return false;
    return value->kind == VALUE_DICT || (torch_what_of(graph, value) == WHAT_ORDERED_DICT &&
                                         value_part(graph, value, PART_ITEMS) == 0);
}

static uint32_t find_taker(const struct torch_edit *edit, struct text_slice name)
{
    const uint32_t number = text_index_find(&edit->takers, name.bytes, name.n_bytes);
    return number == TEXT_INDEX_NONE ? 0 : edit->taker_nodes[number];
}

static int add_taker(struct torch_edit *edit, struct text_slice name, uint32_t i)
{
    uint32_t number;
    const size_t n_before = edit->takers.n_texts;
    const int code =
        text_index_add(&edit->takers, name.n_bytes == 0 ? "" : name.bytes, name.n_bytes, &number);
    if (code == 0 && number == n_before)
        edit->taker_nodes[number] = i;
    return code;
}

static int index_takers(struct torch_edit *edit)
{
    int code = 0;
    for (uint32_t i = edit->root; i <= edit->end && code == 0; i++)
        code = can_take(edit, i) ? add_taker(edit, edit->nodes[i].to, i) : 0;
    return code;
}

/* Finds the innermost dict that the name leads into, and the rest of the name. 0: none. */
static uint32_t lead(const struct torch_edit *edit, struct text_slice name,
                     struct text_slice *ret_rest)
{
    for (size_t n = name.n_bytes; n-- > 1;) {
        const uint32_t taker =
            name.bytes[n] == '.' ? find_taker(edit, (struct text_slice){name.bytes, n}) : 0;
        *ret_rest = (struct text_slice){name.bytes + n + 1, name.n_bytes - n - 1};
        if (taker != 0)
            return taker;
    }
    *ret_rest = name;
    return find_taker(edit, (struct text_slice){"", 0});
}

static bool is_integer(const struct torch_edit *edit, uint32_t key)
{
    return key != 0 && graph_at(&edit->plan->graph, key)->kind == VALUE_INT;
}

/* Makes a key. One that was an integer stays an integer among integers, if its new name is one. */
static uint32_t make_key(struct torch_edit *edit, uint32_t old, uint32_t taker,
                         struct text_slice name)
{
    struct graph *graph = &edit->plan->graph;
    const struct value *dict =
        taker == edit->shell ? NULL : graph_at(graph, edit->places[taker].id);
    const bool has_integers = dict != NULL && dict->kind == VALUE_DICT && dict->n > 0 &&
                              is_integer(edit, value_items(dict)[0]);
    int64_t number = 0;
    bool is_number = is_integer(edit, old) && has_integers && name.n_bytes > 0 &&
                     name.n_bytes < 18 && (name.bytes[0] != '0' || name.n_bytes == 1);
    for (size_t i = 0; i < name.n_bytes && is_number; i++) {
        is_number = name.bytes[i] >= '0' && name.bytes[i] <= '9';
        number = number * 10 + (name.bytes[i] - '0');
    }
    return is_number ? value_new_integer(graph, number)
                     : value_new_text(graph, name.bytes, name.n_bytes);
}

/* Returns whether its container can take it under its new name as well as the taker: the dicts of a
 * module have one name. */
static bool can_stay(const struct torch_edit *edit, uint32_t i, uint32_t taker)
{
    const uint32_t parent = i > edit->n_places ? 0 : edit->places[i].parent;
    return parent != 0 && taker != 0 && can_take(edit, parent) && edit->nodes[parent].is_alive &&
           edit_name_is_same(edit->nodes[parent].to, edit->nodes[taker].to);
}

#define NAME_TAKEN "another item has that name: rename one of them"

/* Returns the module of which the place is the value of the whole; 0: it is something else. */
static uint32_t whole_of(const struct torch_edit *edit, uint32_t i)
{
    const struct catalog_place *place = &edit->places[i];
    return edit->nodes[i].kind == PLACE_VALUE && place->item == PLACE_FIXED && place->parent != 0 &&
                   edit->nodes[place->parent].kind == PLACE_HOLDER &&
                   edit->places[place->parent].id == place->id
               ? place->parent
               : 0;
}

/* Renames it within its container, or moves it into another one. */
static int move(struct torch_edit *edit, uint32_t i)
{
    struct edit_node *node = &edit->nodes[i];
    const uint32_t was_key = i <= edit->n_places ? torch_edit_old_key(edit, i) : 0;
    struct text_slice rest;
    uint32_t taker = lead(edit, node->to, &rest);
    const struct catalog_place *place = i > edit->n_places ? NULL : &edit->places[i];
    const bool is_item =
        place == NULL || i == edit->root || is_loose(edit, i) || place->item != PLACE_FIXED;
    /* Tensors can be keys of items. */
    const bool is_key =
        place != NULL && place->parent != 0 && place->item % 2 == 0 &&
        graph_at(&edit->plan->graph, edit->places[place->parent].id)->kind == VALUE_DICT;
    const uint32_t module = place == NULL ? 0 : whole_of(edit, i);
    const size_t n_own = module == 0 ? 0 : place->n_name - place->start + 1;
    const struct text_slice whole = {node->to.bytes, node->to.n_bytes - n_own};
    if (module != 0 && node->to.n_bytes > n_own && torch_edit_is_taken(edit, module, whole))
        return torch_edit_fail(edit, whole, NAME_TAKEN);
    if (!is_item || is_key)
        return torch_edit_fail(edit, node->to,
                               "it is a required part of an object: rename the object as a whole");
    if (node->claim != 0 && torch_edit_is_taken(edit, i, node->to))
        return torch_edit_fail(edit, node->to, NAME_TAKEN);
    if (can_stay(edit, i, taker))
        taker = edit->places[i].parent;
    node->key = make_key(edit, was_key, taker, rest);
    if (node->key == 0)
        return -ENOMEM;
    if (i <= edit->n_places && taker == edit->places[i].parent && was_key != 0)
        return 0;
    node->is_gone = i <= edit->n_places;
    node->parent = taker;
    return 0;
}

/* Returns whether it needs another container, or another key. */
static bool must_move(const struct torch_edit *edit, uint32_t i)
{
    const struct edit_node *node = &edit->nodes[i];
    const struct catalog_place *place = &edit->places[i];
    if (i > edit->n_places)
        return i != edit->shell;
    if (i == edit->root)
        return edit->shell != 0 && node->kind == PLACE_TENSOR && node->claim != 0;
    if (place->parent == 0 || place->start == PLACE_FIXED || node->to.bytes == NULL)
        return false;
    if (node->kind == PLACE_HOLDER ? !node->is_alive : !torch_edit_is_shown(edit, i))
        return false;
    return is_loose(edit, i) || ((node->kind != PLACE_HOLDER || place->item != PLACE_FIXED) &&
                                 !torch_edit_is_at_home(edit, i));
}

/* Marks modules whose value is removed: they stay only if something in them does. */
static void give_up_modules(struct torch_edit *edit)
{
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        const uint32_t module = whole_of(edit, i);
        if (module != 0 && edit->nodes[i].claim == 0)
            edit->nodes[module].is_given_up = true;
    }
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        struct edit_node *node = &edit->nodes[i];
        node->is_given_up = node->is_given_up || edit->nodes[edit->places[i].parent].is_given_up;
    }
}

/* Marks it and its containers as alive. Objects only stay alive with tensors, other containers
 * also with values, and dicts and modules that are given up with what does not leave them. */
static void revive(struct torch_edit *edit, uint32_t i, bool by_tensor)
{
    for (; i != 0 && i <= edit->n_places && !edit->nodes[i].is_alive; i = edit->places[i].parent) {
        if (torch_edit_is_object(edit, i) && (edit->nodes[i].is_apart || !by_tensor))
            return;
        edit->nodes[i].is_alive = true;
        if (i > edit->root && i <= edit->end && must_move(edit, i) &&
            (edit->nodes[i].is_given_up || torch_edit_is_dict(edit, torch_edit_holder(edit, i))))
            return;
    }
}

static void revive_takers(struct torch_edit *edit)
{
    struct text_slice rest;
    for (uint32_t i = edit->root; i <= edit->n_nodes; i++)
        if (must_move(edit, i))
            revive(edit, lead(edit, edit->nodes[i].to, &rest), true);
}

/* Finds out which containers stay: those that are not empty, or get something new. */
static void find_alive(struct torch_edit *edit)
{
    give_up_modules(edit);
    for (uint32_t i = 1; i <= edit->n_places; i++)
        if (edit->nodes[i].claim != 0 && edit->nodes[i].kind == PLACE_TENSOR)
            revive(edit, i, true);
    for (uint32_t i = 1; i <= edit->n_places; i++)
        if ((edit->nodes[i].claim != 0 ||
             (edit->places[i].name == NULL && !edit->nodes[i].is_given_up)) &&
            torch_edit_version_dict(edit, i) == 0)
            revive(edit, i, false);
    revive_takers(edit);
}

/* Returns whether the root can neither stay what it is nor take what moves into it. */
static bool needs_shell(const struct torch_edit *edit)
{
    const struct edit_node *root = &edit->nodes[edit->root];
    struct text_slice rest;
    if (torch_edit_is_object(edit, edit->root) && (root->is_apart || !root->has_tensor))
        return true;
    if (root->kind == PLACE_TENSOR && !edit_name_is_same(root->to, edit_name_old(edit, edit->root)))
        return true;
    for (uint32_t i = edit->root; i <= edit->n_nodes; i++)
        if (must_move(edit, i) && lead(edit, edit->nodes[i].to, &rest) == 0)
            return true;
    return false;
}

/* Adds a dict in the place of the root: around it when it is a tensor, otherwise with its items. */
static int add_shell(struct torch_edit *edit)
{
    struct edit_node *root = &edit->nodes[edit->root];
    edit->shell = ++edit->n_nodes;
    edit->nodes[edit->shell] =
        (struct edit_node){.kind = PLACE_HOLDER, .is_alive = true, .to = {"", 0}};
    root->is_apart = root->is_apart || root->kind == PLACE_HOLDER;
    root->is_gone = true;
    text_index_done(&edit->takers);
    edit->takers = (struct text_index){0};
    int code = add_taker(edit, (struct text_slice){"", 0}, edit->shell);
    if (code == 0)
        code = index_takers(edit);
    if (code == 0)
        revive_takers(edit);
    return code;
}

static int settle(struct torch_edit *edit, uint32_t i)
{
    struct edit_node *node = &edit->nodes[i];
    if (must_move(edit, i))
        return move(edit, i);
    if (i == edit->root || node->is_alive ||
        (node->claim != 0 && torch_edit_version_dict(edit, i) != 0))
        return 0;
    node->is_gone = edit->places[i].item != PLACE_FIXED;
    const uint32_t holder = torch_edit_holder(edit, i);
    if (!node->is_gone && torch_edit_is_object(edit, i) && edit->nodes[holder].is_alive &&
        !torch_edit_is_object(edit, holder))
        return torch_edit_fail(
            edit, edit_name_old(edit, i),
            "it was a required part of an object: keep it, or remove the object as a whole");
    return 0;
}

/* Decides for each node whether it moves, and into which container. */
static int move_all(struct torch_edit *edit)
{
    int code = index_takers(edit);
    if (code == 0)
        find_alive(edit);
    if (code == 0 && needs_shell(edit))
        code = add_shell(edit);
    for (uint32_t i = edit->root; i <= edit->n_nodes && code == 0; i++)
        code = i <= edit->end || i > edit->n_places ? settle(edit, i) : 0;
    return code;
}

/* ---- places ---- */

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
    node->to = (struct text_slice){name, strlen(name)};
}

/* Lets the values that are attributes of tensors follow them: they get their new names, or go with
 * them. */
static int follow_tensors(struct torch_edit *edit)
{
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        struct edit_node *node = &edit->nodes[i];
        const struct text_slice old = edit_name_old(edit, i);
        if (node->kind != PLACE_VALUE || node->claim == 0 || !edit_name_is_same(node->to, old))
            continue;
        const uint32_t holder = torch_edit_holder(edit, i);
        if (holder == 0 || edit->nodes[holder].kind != PLACE_TENSOR)
            continue;
        const struct text_slice before = edit_name_old(edit, holder), end = edit->nodes[holder].to;
        if (edit->nodes[holder].claim == 0)
            node->claim = 0;
        if (node->claim == 0 || edit_name_is_same(before, end))
            continue;
        const size_t n_rest = old.n_bytes - before.n_bytes;
        char *name = arena_chars(edit->plan->graph.arena, end.n_bytes + n_rest);
        if (name == NULL)
            return -ENOMEM;
        memcpy(mempcpy(name, end.bytes, end.n_bytes), old.bytes + before.n_bytes, n_rest);
        node->to = (struct text_slice){name, end.n_bytes + n_rest};
    }
    return 0;
}

static int claim_all(struct torch_edit *edit)
{
    const struct wfs_catalog *catalog = edit->catalog;
    const size_t n_room = (size_t)edit->n_places + catalog->n_tensors + catalog->values.n + 2;
    if (n_room >= UINT32_MAX)
        return wfs_fail(edit->plan->err, E2BIG, "too many tensors and values");
    edit->nodes = calloc(n_room, sizeof(*edit->nodes));
    edit->walk = calloc(n_room, sizeof(*edit->walk));
    edit->taker_nodes = calloc(n_room, sizeof(*edit->taker_nodes));
    edit->firsts = calloc((size_t)catalog->values.graph.n_values + 1, sizeof(*edit->firsts));
    edit->n_same = calloc((size_t)edit->n_places + 1, sizeof(*edit->n_same));
    if (edit->nodes == NULL || edit->walk == NULL || edit->taker_nodes == NULL ||
        edit->firsts == NULL || edit->n_same == NULL)
        return -ENOMEM;
    edit->n_nodes = edit->n_places;
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        edit->nodes[i].kind = edit->places[i].kind;
        edit->nodes[i].id = edit->places[i].id;
        edit->nodes[i].parent = edit->places[i].parent;
    }
    for (uint32_t i = 0; i < catalog->n_tensors; i++)
        claim(edit, wfs_catalog_tensor(catalog, i)->place, PLACE_TENSOR, i,
              wfs_catalog_tensor(catalog, i)->key, 0);
    for (uint32_t i = 0; i < catalog->values.n; i++)
        claim(edit, catalog->values.list[i].place, PLACE_VALUE, i, catalog->values.list[i].name,
              catalog->values.list[i].id);
    return follow_tensors(edit);
}

/* Finds the place that stands for all places of a value: one that stays, if any does. */
static void count_same(struct torch_edit *edit)
{
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        uint32_t *first = &edit->firsts[edit->places[i].id];
        if (edit->places[i].kind == PLACE_VALUE && edit->places[i].item == PLACE_FIXED)
            continue;
        if (*first == 0 || (edit->nodes[*first].claim == 0 && edit->nodes[i].claim != 0)) {
            edit->n_same[i] = edit->n_same[*first];
            *first = i;
        }
        edit->n_same[*first]++;
    }
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
        return -ENOMEM;
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
    const struct text_slice container = edit_name_old(edit, i);
    for (uint32_t k = 1; k <= edit->n_places; k++) {
        const struct text_slice old = edit_name_old(edit, k);
        if (edit->nodes[k].claim == 0 || torch_edit_version_dict(edit, k) != 0)
            continue;
        if (!edit_name_begins(old, container) ||
            !edit_name_is_same((struct text_slice){old.bytes + container.n_bytes + 1,
                                                   old.n_bytes - container.n_bytes - 1},
                               edit->nodes[k].to))
            return false;
    }
    return true;
}

/* Returns whether everything that is left was in the dict and has lost its name, while nothing has
 * another name in its place. */
static bool is_left_alone(const struct torch_edit *edit, uint32_t i)
{
    const struct text_slice container = edit_name_old(edit, i);
    for (uint32_t k = 1; k <= edit->n_places && torch_edit_is_dict(edit, i); k++) {
        const struct text_slice old = edit_name_old(edit, k), end = edit->nodes[k].to;
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
    const uint32_t leaf = wfs_catalog_tensor(catalog, 0)->place;
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
    if (code < 0)
        return code;
    count_same(edit);
    edit->root = find_root(edit);
    edit->end = edit->root;
    while (edit->end < edit->n_places && edit->places[edit->end + 1].parent >= edit->root)
        edit->end++;
    code = torch_edit_names(edit);
    if (code == 0)
        code = torch_edit_objects(edit);
    if (code == 0)
        code = move_all(edit);
    if (code < 0)
        return code;
    link_all(edit);
    return order_all(edit);
}
