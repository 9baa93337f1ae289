/* SPDX-License-Identifier: MIT */
/*
 * From new names to places. A name says nothing about where one dict ends and the next begins, so
 * the places of what was loaded decide: a thing goes into the innermost dict whose name its own
 * name begins with.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/writer/torch_edit.h"

struct edit_name edit_name_old(const struct torch_edit *edit, uint32_t i)
{
    const struct catalog_place *place = &edit->places[i];
    return (struct edit_name){place->name, place->name == NULL ? 0 : place->n_name};
}

struct edit_name edit_name_end(const struct edit_node *node)
{
    return (struct edit_name){node->to, node->n_to};
}

bool edit_name_is_same(struct edit_name a, struct edit_name b)
{
    return a.n_bytes == b.n_bytes && (a.n_bytes == 0 || memcmp(a.bytes, b.bytes, a.n_bytes) == 0);
}

bool edit_name_begins(struct edit_name name, struct edit_name prefix)
{
    return prefix.n_bytes == 0 ||
           (name.n_bytes > prefix.n_bytes && name.bytes[prefix.n_bytes] == '.' &&
            memcmp(name.bytes, prefix.bytes, prefix.n_bytes) == 0);
}

uint64_t edit_name_hash(struct edit_name name)
{
    return hash_bytes(name.n_bytes == 0 ? "" : name.bytes, name.n_bytes, hash_seed());
}

int torch_edit_fail(const struct torch_edit *edit, struct edit_name name, const char *why)
{
    return wfs_fail(edit->plan->err, EINVAL, "'%s' cannot be in the checkpoint: %s",
                    wfs_quote_n(name.bytes, name.n_bytes).text, why);
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

/* ---- what containers are called in the end ---- */

bool torch_edit_is_shown(const struct torch_edit *edit, uint32_t i)
{
    return edit->nodes[i].claim != 0 &&
           (edit->nodes[i].kind != PLACE_VALUE || edit->places[i].item != PLACE_FIXED ||
            !edit_name_is_same(edit_name_end(&edit->nodes[i]), edit_name_old(edit, i)));
}

/*
 * What is in a container says what it would be called if it had been renamed as a whole; if
 * anything is still below its old name, it stays.
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
        const struct edit_name container = edit_name_old(edit, i);
        bool is_whole = container.n_bytes > 0 && edit->nodes[i].kind == PLACE_HOLDER &&
                        edit->places[i].start != PLACE_FIXED;
        for (uint32_t k = 1; k <= edit->n_places && is_whole; k++) {
            const struct edit_name old = edit_name_old(edit, k);
            if (edit->nodes[k].claim != 0)
                is_whole =
                    edit_name_begins(old, container) &&
                    edit_name_is_same((struct edit_name){old.bytes + container.n_bytes + 1,
                                                         old.n_bytes - container.n_bytes - 1},
                                      edit_name_end(&edit->nodes[k]));
        }
        if (is_whole)
            return i;
    }
    return loaded_root(edit);
}

struct named {
    const struct torch_edit *edit;
    struct edit_name name;
    uint32_t i; /* whose name does not count */
};

/* Two that were called alike can be so again: a tensor that is the key of a dict. */
static bool is_named(const void *ctx, uint32_t i)
{
    const struct named *wanted = ctx;
    const struct torch_edit *edit = wanted->edit;
    if (i == wanted->i || !edit_name_is_same(edit_name_end(&edit->nodes[i]), wanted->name))
        return false;
    return wanted->i == 0 || i > edit->n_places || wanted->i > edit->n_places ||
           !edit_name_is_same(edit_name_old(edit, i), edit_name_old(edit, wanted->i));
}

bool torch_edit_is_taken(const struct torch_edit *edit, uint32_t i, struct edit_name name)
{
    const struct named wanted = {edit, name, i};
    uint32_t found;
    return map_find(&edit->by_name, edit_name_hash(name), is_named, &wanted, &found);
}

/* Places are in the order in which names are given. */
bool torch_edit_stays(const struct torch_edit *edit, struct edit_name name)
{
    const struct named wanted = {edit, name, 0};
    uint32_t i;
    return map_find(&edit->by_name, edit_name_hash(name), is_named, &wanted, &i) &&
           i <= edit->n_places && edit->nodes[i].claim != 0 &&
           edit_name_is_same(edit_name_old(edit, i), name);
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

/* A wish comes true unless something else is called so, or it is not an item that could be called
 * otherwise than what it is in. */
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

/* Places come before what is in them. */
static int name_containers(struct torch_edit *edit)
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
    code = name_containers(edit);
    if (code == 0)
        code = torch_edit_objects(edit);
    if (code == 0)
        code = torch_edit_moves(edit);
    if (code < 0)
        return code;
    link_all(edit);
    return order_all(edit);
}
