/* SPDX-License-Identifier: MIT */
/*
 * From new names to places. A name says nothing about where one dict ends and the next begins, so
 * the places of what was loaded decide: a thing goes into the innermost dict whose name its own
 * name begins with.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/torch_edit.h"

struct name {
    const char *bytes;
    size_t n_bytes;
};

static struct name old_name(const struct torch_edit *edit, uint32_t i)
{
    const struct catalog_place *place = &edit->places[i];
    return (struct name){place->name, place->name == NULL ? 0 : place->n_name};
}

static bool is_same(struct name a, struct name b)
{
    return a.n_bytes == b.n_bytes && (a.n_bytes == 0 || memcmp(a.bytes, b.bytes, a.n_bytes) == 0);
}

static bool begins_with(struct name name, struct name prefix)
{
    return prefix.n_bytes == 0 ||
           (name.n_bytes > prefix.n_bytes && name.bytes[prefix.n_bytes] == '.' &&
            memcmp(name.bytes, prefix.bytes, prefix.n_bytes) == 0);
}

static struct name end_name(const struct edit_node *node)
{
    return (struct name){node->to, node->n_to};
}

static void set_name(struct edit_node *node, const char *name)
{
    node->to = name;
    node->n_to = (uint32_t)strlen(name);
}

/* ---- who is where ---- */

/* A tensor or value takes the place that it has, or gets a node behind the places. */
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
    return 0;
}

struct same_value {
    const struct torch_edit *edit;
    uint32_t id;
};

static bool is_same_value(const void *ctx, uint32_t i)
{
    const struct same_value *wanted = ctx;
    return wanted->edit->places[i].id == wanted->id;
}

uint32_t torch_edit_first(const struct torch_edit *edit, uint32_t place, uint32_t *ret_n)
{
    const struct same_value wanted = {edit, edit->places[place].id};
    const uint64_t hash = hash_bytes(&wanted.id, sizeof(wanted.id), hash_seed());
    uint32_t first = 0;
    map_find(&edit->by_value, hash, is_same_value, &wanted, &first);
    *ret_n = first == 0 ? 0 : edit->n_same[first];
    return first;
}

static int count_same(struct torch_edit *edit)
{
    if (map_reserve(&edit->by_value, edit->n_places) < 0)
        return wfs_fail_memory(edit->plan->err);
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        uint32_t n, first = torch_edit_first(edit, i, &n);
        const uint32_t id = edit->places[i].id;
        if (first == 0 && map_add(&edit->by_value, hash_bytes(&id, sizeof(id), hash_seed()), i) < 0)
            return wfs_fail_memory(edit->plan->err);
        edit->n_same[first == 0 ? i : first]++;
    }
    return 0;
}

/* ---- what containers are called in the end ---- */

/*
 * What is in a container says what it would be called if it had been renamed as a whole; if
 * anything is still below its old name, it stays.
 */
static void vote(struct torch_edit *edit, uint32_t leaf)
{
    const struct name name = end_name(&edit->nodes[leaf]), old = old_name(edit, leaf);
    for (uint32_t i = edit->places[leaf].parent; i != 0; i = edit->places[i].parent) {
        struct edit_node *node = &edit->nodes[i];
        const struct name container = old_name(edit, i);
        if (node->kind != PLACE_HOLDER || container.n_bytes == 0)
            continue;
        const size_t n_rest = old.n_bytes - container.n_bytes;
        if (begins_with(name, container)) {
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

/* The root of what was loaded; things about it can come first. */
static uint32_t loaded_root(const struct torch_edit *edit)
{
    for (uint32_t i = 1; i <= edit->n_places; i++)
        if (edit->places[i].parent == 0 && edit->nodes[i].kind == PLACE_HOLDER)
            return i;
    return 1;
}

/* A part of the file as the whole: the innermost container whose names all have lost its own. */
static uint32_t find_root(const struct torch_edit *edit)
{
    const struct wfs_catalog *catalog = edit->catalog;
    if (catalog->n_tensors == 0 || edit->n_nodes > edit->n_places)
        return loaded_root(edit);
    const uint32_t leaf = catalog->tensors[0].place;
    for (uint32_t i = edit->places[leaf].parent; i != 0; i = edit->places[i].parent) {
        const struct name container = old_name(edit, i);
        bool is_whole = container.n_bytes > 0 && edit->nodes[i].kind == PLACE_HOLDER &&
                        edit->places[i].start != PLACE_FIXED;
        for (uint32_t k = 1; k <= edit->n_places && is_whole; k++) {
            const struct name old = old_name(edit, k);
            if (edit->nodes[k].claim != 0)
                is_whole = begins_with(old, container) &&
                           is_same((struct name){old.bytes + container.n_bytes + 1,
                                                 old.n_bytes - container.n_bytes - 1},
                                   end_name(&edit->nodes[k]));
        }
        if (is_whole)
            return i;
    }
    return loaded_root(edit);
}

/* Places come before what is in them. */
static void name_containers(struct torch_edit *edit)
{
    for (uint32_t i = 1; i <= edit->n_places; i++)
        if (edit->nodes[i].claim != 0)
            vote(edit, i);
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        struct edit_node *node = &edit->nodes[i];
        const struct name old = old_name(edit, i);
        if (node->kind != PLACE_HOLDER)
            continue;
        if (i == edit->root) {
            node->n_to = 0;
        } else if (edit->places[i].start == PLACE_FIXED && node->parent != 0) {
            node->to = edit->nodes[node->parent].to;
            node->n_to = edit->nodes[node->parent].n_to;
        } else if (node->stays || !node->has_vote) {
            node->to = old.bytes;
            node->n_to = (uint32_t)old.n_bytes;
        }
    }
}

/* ---- where things go ---- */

static bool can_take(const struct torch_edit *edit, uint32_t i)
{
    const struct graph *graph = &edit->plan->graph;
    const struct value *value = graph_at(graph, edit->places[i].id);
    if (edit->nodes[i].kind != PLACE_HOLDER)
        return false;
    return value->kind == VALUE_DICT || (torch_what_of(graph, value) == WHAT_ORDERED_DICT &&
                                         value_part(graph, value, PART_ITEMS) == 0);
}

struct taker {
    const struct torch_edit *edit;
    struct name name;
};

static bool is_taker(const void *ctx, uint32_t i)
{
    const struct taker *wanted = ctx;
    return is_same(end_name(&wanted->edit->nodes[i]), wanted->name);
}

static uint64_t hash_name(struct name name)
{
    return hash_bytes(name.n_bytes == 0 ? "" : name.bytes, name.n_bytes, hash_seed());
}

static bool find_taker(const struct torch_edit *edit, struct name name, uint32_t *ret)
{
    const struct taker wanted = {edit, name};
    return map_find(&edit->takers, hash_name(name), is_taker, &wanted, ret);
}

static int index_takers(struct torch_edit *edit)
{
    uint32_t other;
    for (uint32_t i = edit->root; i <= edit->end; i++) {
        const struct name name = end_name(&edit->nodes[i]);
        if (can_take(edit, i) && !find_taker(edit, name, &other) &&
            map_add(&edit->takers, hash_name(name), i) < 0)
            return wfs_fail_memory(edit->plan->err);
    }
    return 0;
}

/* The innermost dict that the name leads into, and what is left of the name. 0: there is none. */
static uint32_t lead(const struct torch_edit *edit, struct name name, struct name *ret_rest)
{
    uint32_t found;
    for (size_t n = name.n_bytes; n-- > 0;) {
        if (name.bytes[n] != '.' || !find_taker(edit, (struct name){name.bytes, n}, &found))
            continue;
        *ret_rest = (struct name){name.bytes + n + 1, name.n_bytes - n - 1};
        return found;
    }
    *ret_rest = name;
    return find_taker(edit, (struct name){"", 0}, &found) ? found : 0;
}

static int fail_place(const struct torch_edit *edit, struct name name, const char *why)
{
    return wfs_fail(edit->plan->err, EINVAL, "'%s' cannot be in the checkpoint: %s",
                    wfs_quote_n(name.bytes, name.n_bytes).text, why);
}

/* An integer key stays one when its new name is one. */
static uint32_t make_key(struct torch_edit *edit, uint32_t old, struct name name)
{
    struct graph *graph = &edit->plan->graph;
    int64_t number = 0;
    bool is_number = old != 0 && graph_at(graph, old)->kind == VALUE_INT && name.n_bytes > 0 &&
                     name.n_bytes < 18 && (name.bytes[0] != '0' || name.n_bytes == 1);
    for (size_t i = 0; i < name.n_bytes && is_number; i++) {
        is_number = name.bytes[i] >= '0' && name.bytes[i] <= '9';
        number = number * 10 + (name.bytes[i] - '0');
    }
    return is_number ? value_new_integer(graph, number)
                     : value_new_text(graph, name.bytes, name.n_bytes);
}

static uint32_t old_key(const struct torch_edit *edit, uint32_t i)
{
    const struct catalog_place *place = &edit->places[i];
    const struct value *holder =
        place->parent == 0 ? NULL : graph_at(&edit->plan->graph, edit->places[place->parent].id);
    const bool is_dict = holder != NULL && holder->kind == VALUE_DICT && place->item % 2 == 1 &&
                         place->item < holder->n;
    return is_dict ? value_items(holder)[place->item - 1] : 0;
}

/* A tensor can be the key of a dict. */
static bool is_dict_key(const struct torch_edit *edit, uint32_t i)
{
    const struct catalog_place *place = &edit->places[i];
    return place->parent != 0 && place->item % 2 == 0 &&
           graph_at(&edit->plan->graph, edit->places[place->parent].id)->kind == VALUE_DICT;
}

/* Renamed within what it was in, or moved into something else. */
static int move(struct torch_edit *edit, uint32_t i)
{
    struct edit_node *node = &edit->nodes[i];
    const uint32_t was_key = i <= edit->n_places ? old_key(edit, i) : 0;
    struct name rest;
    const uint32_t taker = lead(edit, end_name(node), &rest);
    if (i <= edit->n_places && (edit->places[i].item == PLACE_FIXED || is_dict_key(edit, i)))
        return fail_place(edit, end_name(node), "it is a part of an object and cannot be renamed");
    if (taker == 0)
        return fail_place(edit, end_name(node),
                          "its outermost part is no dict, which could take it");
    node->key = make_key(edit, was_key, rest);
    if (node->key == 0)
        return wfs_fail_memory(edit->plan->err);
    if (i <= edit->n_places && taker == edit->places[i].parent && was_key != 0)
        return 0;
    node->is_gone = i <= edit->n_places;
    node->parent = taker;
    return 0;
}

/* Is it the root, or the dict of it? */
static bool is_outermost(const struct torch_edit *edit, uint32_t i)
{
    while (i != edit->root && edit->places[i].start == PLACE_FIXED && edit->places[i].parent != 0)
        i = edit->places[i].parent;
    return i == edit->root;
}

/* The name that it has if nothing but its container is renamed. */
static bool is_at_home(const struct torch_edit *edit, uint32_t i)
{
    const struct catalog_place *place = &edit->places[i];
    const struct name holder = end_name(&edit->nodes[place->parent]),
                      name = end_name(&edit->nodes[i]), old = old_name(edit, i);
    const size_t n_own = old.n_bytes - place->start;
    const size_t n_before = is_outermost(edit, place->parent) ? 0 : holder.n_bytes + 1;
    return name.n_bytes == n_before + n_own &&
           memcmp(name.bytes + n_before, old.bytes + place->start, n_own) == 0 &&
           (n_before == 0 || begins_with(name, holder));
}

/* Must it go into another container, or under another key? */
static bool must_move(const struct torch_edit *edit, uint32_t i)
{
    const struct edit_node *node = &edit->nodes[i];
    const struct catalog_place *place = &edit->places[i];
    if (i > edit->n_places)
        return true;
    if (i == edit->root || place->parent == 0 || place->start == PLACE_FIXED || node->to == NULL)
        return false;
    if (node->kind == PLACE_HOLDER)
        return node->is_alive && place->item != PLACE_FIXED && !is_at_home(edit, i);
    return node->claim != 0 && !is_at_home(edit, i);
}

static void revive(struct torch_edit *edit, uint32_t i)
{
    for (; i != 0 && !edit->nodes[i].is_alive; i = edit->places[i].parent)
        edit->nodes[i].is_alive = true;
}

/* A container that nothing is left in goes, unless something new comes in. */
static void find_alive(struct torch_edit *edit)
{
    struct name rest;
    for (uint32_t i = 1; i <= edit->n_places; i++)
        if (edit->nodes[i].claim != 0 || edit->places[i].name == NULL)
            revive(edit, i);
    for (uint32_t i = edit->root; i <= edit->n_nodes; i++)
        if (must_move(edit, i))
            revive(edit, lead(edit, end_name(&edit->nodes[i]), &rest));
}

static int settle(struct torch_edit *edit, uint32_t i)
{
    struct edit_node *node = &edit->nodes[i];
    if (must_move(edit, i))
        return move(edit, i);
    if (i == edit->root || node->is_alive)
        return 0;
    node->is_gone = edit->places[i].item != PLACE_FIXED;
    if (!node->is_gone && node->kind == PLACE_TENSOR &&
        edit->nodes[edit->places[i].parent].is_alive)
        return fail_place(edit, old_name(edit, i),
                          "it was a part of an object, of which other parts are still there");
    return 0;
}

/* ---- the new order ---- */

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
    /* What was moved or is new comes behind all that stayed. */
    for (uint32_t i = 1; i <= edit->n_nodes; i++)
        if (i > edit->n_places ||
            (edit->nodes[i].is_gone && edit->nodes[i].parent != edit->places[i].parent))
            append(edit, i);
}

/* From the outside to the inside. */
static int order_all(struct torch_edit *edit)
{
    autofree uint32_t *stack = calloc((size_t)edit->n_nodes + 1, sizeof(*stack));
    uint32_t n = 0;
    if (stack == NULL)
        return wfs_fail_memory(edit->plan->err);
    stack[n++] = edit->root;
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

int torch_edit_names(struct torch_edit *edit)
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
    name_containers(edit);
    code = index_takers(edit);
    find_alive(edit);
    for (uint32_t i = edit->root; i <= edit->n_nodes && code == 0; i++)
        code = i <= edit->end || i > edit->n_places ? settle(edit, i) : 0;
    if (code < 0)
        return code;
    link_all(edit);
    return order_all(edit);
}
