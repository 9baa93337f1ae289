/* SPDX-License-Identifier: MIT */
/*
 * A loaded checkpoint without names that may run code. What a call of one makes becomes None where
 * it is, so that everything that refers to it does, and nothing beside it is lost: an object with
 * tensors becomes a dict of them, as its state_dict() would be, a tensor becomes a plain one, and
 * the key of an item the text by which the item is listed.
 */
#include "format/pytorch/writer/torch_checkpoint.h"

#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/python_json.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_dangers.h"
#include "format/pytorch/object/torch_storage.h"
#include "value/value_leaf.h"

/* What becomes of a value; a dict is placed when one of its places was found. */
enum fate { FATE_STAYS, FATE_NONE, FATE_DICT, FATE_PLACED_DICT };

struct purge {
    struct wfs_catalog *catalog;
    struct graph graph;
    uint32_t n_values; /* that were loaded */
    uint8_t *owned;    /* of the graph's chunks */
    uint32_t n_owned;
    uint8_t *fates; /* by value */
    bool is_flat;   /* tensors would lose their place */
    int (*report)(void *ctx, const char *module, const char *name);
    void *ctx;
};

static bool is_gone(const struct purge *purge, uint32_t id)
{
    return purge->fates[id] != FATE_STAYS;
}

/* Returns whether one of the items goes, as the class in the id of a persistent value does. */
static bool has_gone_item(const struct purge *purge, uint32_t tuple)
{
    bool has = false;
    for (uint32_t i = 0; i < torch_n_args(&purge->graph, tuple) && !has; i++)
        has = is_gone(purge, torch_arg(&purge->graph, tuple, i));
    return has;
}

/* Returns whether a value goes: a name, and a call for what it calls, or with one of its arguments.
 * Bytes that are not a storage may be a checkpoint with any name in it. */
static bool goes(const struct purge *purge, uint32_t id)
{
    const struct value *value = graph_at(&purge->graph, id);
    switch (value->kind) {
    case VALUE_GLOBAL:
        return !torch_is_harmless(&purge->graph, id);
    case VALUE_PERSISTENT:
        return has_gone_item(purge, value->id);
    case VALUE_CALL:
        return value->form == FORM_EXTENSION || is_gone(purge, value->call.callable) ||
               (torch_what_of(&purge->graph, value) == WHAT_LOAD_FROM_BYTES &&
                torch_storage_at(purge->catalog, id) == NULL) ||
               has_gone_item(purge, value->call.args);
    default:
        return false;
    }
}

/* Decides about every value before one is changed, in the order in which they were made: what a
 * call needs precedes it. */
static int judge(struct purge *purge)
{
    int code = 0;
    for (uint32_t id = 1; id <= purge->n_values && code == 0; id++) {
        const struct value *value = graph_at(&purge->graph, id);
        if (!goes(purge, id))
            continue;
        purge->fates[id] = FATE_NONE;
        if (value->kind == VALUE_GLOBAL)
            code = purge->report(purge->ctx, value->global->module, value->global->name);
    }
    return code;
}

/* ---- keys ---- */

/* Returns whether a key is or holds what goes: two such keys must not become the same. */
static bool is_gone_key(const struct purge *purge, uint32_t id, unsigned depth)
{
    enum { MAX_DEPTH = 8 };
    const struct value *value = graph_at(&purge->graph, id);
    bool has = is_gone(purge, id) || depth > MAX_DEPTH;
    for (uint32_t i = 0; value->kind == VALUE_TUPLE && i < value->n && !has; i++)
        has = is_gone_key(purge, value_items(value)[i], depth + 1);
    return has;
}

/* Makes the text of a key as names of what is in the item have it; 0 when out of memory. */
static uint32_t spell_key(struct purge *purge, uint32_t key)
{
    autostrbuf struct strbuf text = {0};
    if (!value_add_key(&text, &purge->graph, key))
        strbuf_printf(&text, "%%key%08x", python_key_digest(&purge->graph, key));
    return text.has_failed ? 0 : value_new_text(&purge->graph, text.bytes, text.n_bytes);
}

static int spell_keys(struct purge *purge, uint32_t dict)
{
    struct graph *graph = &purge->graph;
    const uint32_t n = graph_at(graph, dict)->n;
    autofree uint32_t *items = NULL;
    for (uint32_t i = 0; i < n; i += 2) {
        const uint32_t key = value_items(graph_at(graph, dict))[i];
        if (!is_gone_key(purge, key, 0))
            continue;
        if (items == NULL) {
            items = calloc(n, sizeof(*items));
            if (items == NULL)
                return -ENOMEM;
            memcpy(items, value_items(graph_at(graph, dict)), n * sizeof(*items));
        }
        items[i] = spell_key(purge, key);
        if (items[i] == 0)
            return -ENOMEM;
    }
    if (items == NULL)
        return 0;
    const uint32_t made = value_new_items(graph, VALUE_DICT, items, n);
    struct value *own = made == 0 ? NULL : graph_own(graph, dict, purge->owned, purge->n_owned);
    if (own == NULL)
        return -ENOMEM;
    const struct value old = *own;
    *own = *graph_at(graph, made);
    own->form = old.form;
    own->marks = old.marks;
    return 0;
}

/* ---- places ---- */

/* Returns the object that owns the module at a place; 0: none. */
static uint32_t owner_of(const struct purge *purge, uint32_t i)
{
    const struct catalog_place *places = purge->catalog->values.places;
    if ((graph_at(&purge->graph, places[i].id)->marks & MARK_OWNED) == 0)
        return 0;
    do {
        i = places[i].parent;
    } while (i != 0 && graph_at(&purge->graph, places[i].id)->kind != VALUE_CALL);
    return i;
}

/* Decides that objects with tensors become dicts, and so does a module that has one: it cannot have
 * a dict as a part. */
static void choose_dicts(struct purge *purge)
{
    const struct catalog_values *values = &purge->catalog->values;
    for (uint32_t i = values->n_places; i > 0; i--) {
        const uint32_t id = values->places[i].id;
        if (values->places[i].kind != PLACE_HOLDER || !is_gone(purge, id))
            continue;
        purge->fates[id] = FATE_DICT;
        const uint32_t owner = owner_of(purge, i);
        if (owner != 0)
            purge->fates[values->places[owner].id] = FATE_DICT;
    }
}

/* Keeps the places that are not in what goes, and writes the new number of each, or 0, to numbers.
 * A dict that is at two places would get the tensors of both. */
static void keep_places(struct purge *purge, struct catalog_place *kept, uint32_t *numbers)
{
    struct catalog_values *values = &purge->catalog->values;
    uint32_t n = 0;
    for (uint32_t i = 1; i <= values->n_places && !purge->is_flat; i++) {
        const struct catalog_place *place = &values->places[i];
        const uint32_t id = place->id, parent = place->parent;
        if (parent != 0 && (numbers[parent] == 0 || is_gone(purge, values->places[parent].id)))
            continue;
        numbers[i] = ++n;
        kept[n] = *place;
        kept[n].parent = numbers[parent];
        if (place->kind == PLACE_TENSOR && is_gone(purge, id))
            kept[n].stamp = ~place->stamp; /* it is made again */
        purge->is_flat = purge->fates[id] == FATE_PLACED_DICT;
        if (purge->fates[id] == FATE_DICT)
            purge->fates[id] = FATE_PLACED_DICT;
    }
    values->n_places = purge->is_flat ? values->n_places : n;
}

/* Gives the tensors and values the new numbers. Tensors without one are new in the dict that their
 * object becomes; values without one go with it. */
static void renumber(struct purge *purge, const uint32_t *numbers, uint32_t n_places)
{
    struct wfs_catalog *catalog = purge->catalog;
    size_t n_kept = 0;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const uint32_t place = catalog->tensors[i].place;
        catalog->tensors[i].place = place <= n_places ? numbers[place] : 0;
    }
    for (size_t i = 0; i < catalog->values.n; i++) {
        struct catalog_value value = catalog->values.list[i];
        if (value.place != 0 && numbers[value.place] == 0)
            continue;
        value.place = numbers[value.place];
        catalog->values.list[n_kept++] = value;
    }
    catalog->values.n = n_kept;
}

static int settle_places(struct purge *purge)
{
    struct catalog_values *values = &purge->catalog->values;
    const uint32_t n_places = values->n_places;
    struct catalog_place *kept =
        arena_calloc(&purge->catalog->arena, (size_t)n_places + 1, sizeof(*kept));
    autofree uint32_t *numbers = calloc((size_t)n_places + 1, sizeof(*numbers));
    if (kept == NULL || numbers == NULL || catalog_own_tensors(purge->catalog) < 0)
        return -ENOMEM;
    choose_dicts(purge);
    purge->is_flat = values->root != 0 && is_gone(purge, values->root);
    keep_places(purge, kept, numbers);
    if (purge->is_flat)
        return 0;
    renumber(purge, numbers, n_places);
    if (values->n_place_room > 0)
        free(values->places);
    values->places = kept;
    values->n_place_room = 0;
    return 0;
}

/* ---- the whole ---- */

static int change_all(struct purge *purge)
{
    int code = 0;
    for (uint32_t id = 1; id <= purge->n_values && code == 0; id++)
        code = graph_at(&purge->graph, id)->kind == VALUE_DICT ? spell_keys(purge, id) : 0;
    for (uint32_t id = 1; id <= purge->n_values && code == 0; id++) {
        if (!is_gone(purge, id))
            continue;
        struct value *own = graph_own(&purge->graph, id, purge->owned, purge->n_owned);
        if (own == NULL)
            return -ENOMEM;
        *own = (struct value){.kind = purge->fates[id] >= FATE_DICT ? VALUE_DICT : VALUE_NONE};
    }
    return code;
}

int torch_purge(struct wfs_catalog *catalog,
                int (*report)(void *ctx, const char *module, const char *name), void *ctx)
{
    const uint32_t n_values = catalog->values.graph.n_values;
    autofree uint8_t *fates = calloc((size_t)n_values + 1, sizeof(*fates));
    struct purge purge = {
        .catalog = catalog, .n_values = n_values, .fates = fates, .report = report, .ctx = ctx};
    graph_fork(&purge.graph, &catalog->values.graph, &catalog->arena);
    purge.n_owned = purge.graph.n_chunks;
    purge.owned = arena_calloc(&catalog->arena, purge.n_owned, 1);
    if (fates == NULL || purge.owned == NULL)
        return -ENOMEM;
    int code = judge(&purge);
    if (code == 0 && catalog->values.is_object)
        code = settle_places(&purge);
    if (code == 0)
        code = change_all(&purge);
    if (code < 0)
        return code;
    catalog->values.graph = purge.graph;
    catalog->values.pickle.source = NULL;
    catalog->values.is_object = catalog->values.is_object && !purge.is_flat;
    return 0;
}
