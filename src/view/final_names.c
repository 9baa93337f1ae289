/* SPDX-License-Identifier: MIT */
/*
 * Keys that became one: an error, or a number after all but the first. Numbers are given when all
 * final keys are known, so that none of them takes a key that a later tensor has.
 *
 * Then names of values next to tensors. Rules apply to keys of tensors; if those of all tensors in
 * a container get another prefix, its values get it too, so that the container stays in one piece.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_index.h"
#include "view/pass.h"

/* ---- keys ---- */

/* A key: who has it, and the next number to try for the others. */
struct holder {
    uint32_t item; /* the first one that has it; HELD_BY_VALUE: a value is called so */
    uint32_t next;
};

enum { HELD_BY_VALUE = UINT32_MAX };

struct holders {
    struct text_index keys;
    struct holder *of; /* by key */
};

static int hold(struct holders *h, const char *key, uint32_t item)
{
    uint32_t id;
    const uint32_t n_before = h->keys.n_texts;
    if (text_index_add(&h->keys, key, strlen(key), &id) < 0)
        return -ENOMEM;
    if (id == n_before)
        h->of[id] = (struct holder){item, 2};
    return 0;
}

/* Values first: a tensor that was renamed must not take the name of one where it is numbered. */
static int collect(const struct pass *pass, struct holders *h)
{
    const struct wfs_catalog *catalog = pass->catalog;
    const size_t n_values = pass->view->collision == COLLISION_SUFFIX ? catalog->values.n : 0;
    h->of = calloc(n_values + pass->report->n_items + 1, sizeof(*h->of));
    if (h->of == NULL)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < n_values; i++) {
        if (hold(h, catalog->values.list[i].name, HELD_BY_VALUE) < 0)
            return wfs_fail_memory(pass->err);
    }
    for_items(item, pass)
    {
        if (hold(h, item->tensor.key, (uint32_t)(item - pass->report->items)) < 0)
            return wfs_fail_memory(pass->err);
    }
    return 0;
}

/* Returns the first of KEY_2, KEY_3, ... that nobody has, in the arena; NULL when out of memory. */
static const char *take_free_key(const struct pass *pass, struct holders *h, struct holder *holder,
                                 const char *key)
{
    for (;;) {
        uint32_t id;
        const uint32_t n_before = h->keys.n_texts;
        const char *text = arena_print(&pass->catalog->arena, "%s_%u", key, holder->next++);
        if (text == NULL || text_index_add(&h->keys, text, strlen(text), &id) < 0)
            return NULL;
        if (id == n_before)
            return text;
    }
}

static int resolve(const struct pass *pass, struct holders *h, struct holder *holder,
                   struct item *item)
{
    const bool is_value = holder->item == HELD_BY_VALUE;
    const struct item *first = is_value ? NULL : &pass->report->items[holder->item];
    /* They had the same key in the file already. */
    if (!item_is_renamed(item) && (is_value || !item_is_renamed(first)))
        return 0;
    if (pass->view->collision == COLLISION_ERROR)
        return wfs_fail(pass->err, EINVAL,
                        "'%s' and '%s' would both be called '%s'; on_collision=suffix numbers them",
                        wfs_quote(first->source_key).text, wfs_quote(item->source_key).text,
                        wfs_quote(item->tensor.key).text);
    pass_rename(pass, item, take_free_key(pass, h, holder, item->tensor.key),
                "on_collision=suffix");
    return 0;
}

static void cleanup_holders(struct holders *h)
{
    text_index_done(&h->keys);
    free(h->of);
}

static bool is_any_renamed(const struct pass *pass)
{
    for_items(item, pass)
    {
        if (item_is_renamed(item))
            return true;
    }
    return false;
}

int pass_collisions(struct pass *pass)
{
    cleanup(cleanup_holders) struct holders h = {0};
    if (!is_any_renamed(pass))
        return 0;
    int code = collect(pass, &h);
    if (code < 0)
        return code;
    for_items(item, pass)
    {
        struct holder *holder =
            &h.of[text_index_find(&h.keys, item->tensor.key, strlen(item->tensor.key))];
        if (holder->item != (uint32_t)(item - pass->report->items))
            code = resolve(pass, &h, holder, item);
        if (code < 0)
            return code;
    }
    return 0;
}

/* ---- values ---- */

/* The name of a place after the renames of all tensors in it. */
struct wish {
    const char *to; /* n_to bytes of this; NULL: no tensor is in it */
    size_t n_to;
    bool is_split;  /* the tensors do not agree */
    bool had_any;   /* a tensor was in it before the filters */
    bool keeps_any; /* a tensor has stayed in it */
};

/* Values whose tensors have gone. */
struct left {
    const char *first;
    size_t n;
};

static bool is_any_gone(const struct pass *pass)
{
    for (size_t i = 0; i < pass->report->n_items; i++) {
        const struct item *item = &pass->report->items[i];
        if (item->drop == DROP_FILTER || item->tensor.key != item->source_key)
            return true;
    }
    return false;
}

/* Notes in which containers the tensor was, and in which of them it still is. */
static void note_stay(const struct wfs_catalog *catalog, struct wish wishes[],
                      const struct item *item)
{
    const struct catalog_place *leaf = &catalog->values.places[item->tensor.place];
    const size_t n_key = strlen(item->cut_key);
    for (uint32_t i = item->tensor.place; i != 0; i = catalog->values.places[i].parent) {
        const size_t n_rest = leaf->n_name - catalog->values.places[i].n_name;
        const size_t n_front = n_key > n_rest ? n_key - n_rest : 0;
        wishes[i].had_any = true;
        if (item_is_shown(item) && strncmp(item->tensor.key, item->cut_key, n_front) == 0 &&
            (n_front == 0 || item->tensor.key[n_front] == '.'))
            wishes[i].keeps_any = true;
    }
}

/* Returns true if the innermost container of the value that had tensors has none of them now. */
static bool is_left(const struct wfs_catalog *catalog, const struct wish wishes[],
                    const struct catalog_value *value)
{
    uint32_t i = value->place == 0 ? 0 : catalog->values.places[value->place].parent;
    if (i == 0 || catalog_tensor_around(catalog, value->place) != 0 ||
        catalog_is_attribute(catalog, value->place))
        return false; /* those follow the tensors */
    while (i != 0 && !wishes[i].had_any)
        i = catalog->values.places[i].parent;
    return i != 0 && catalog->values.places[i].n_name > 0 && !wishes[i].keeps_any;
}

static void vote(const struct wfs_catalog *catalog, struct wish wishes[],
                 const struct wfs_tensor *tensor)
{
    const struct catalog_place *leaf = &catalog->values.places[tensor->place];
    const size_t n_key = strlen(tensor->key);
    for (uint32_t i = tensor->place; i != 0; i = catalog->values.places[i].parent) {
        const struct catalog_place *place = &catalog->values.places[i];
        const size_t n_rest = leaf->n_name - place->n_name;
        struct wish *wish = &wishes[i];
        const bool fits = n_key > n_rest && memcmp(tensor->key + n_key - n_rest,
                                                   leaf->name + place->n_name, n_rest) == 0;
        const size_t n_to = fits ? n_key - n_rest : 0;
        wish->is_split =
            wish->is_split || !fits ||
            (wish->to != NULL && (wish->n_to != n_to || memcmp(wish->to, tensor->key, n_to) != 0));
        wish->to = tensor->key;
        wish->n_to = n_to;
    }
}

/* Writes the name of the value after its innermost container that has a tensor; NULL: as it is.
 * -ENOMEM. */
static int follow(struct wfs_catalog *catalog, const struct wish wishes[],
                  const struct catalog_value *value, const char **ret)
{
    const struct catalog_place *place = &catalog->values.places[value->place];
    uint32_t i = place->parent;
    while (i != 0 && wishes[i].to == NULL)
        i = catalog->values.places[i].parent;
    *ret = NULL;
    if (i == 0 || catalog->values.places[i].n_name == 0 || wishes[i].is_split)
        return 0;
    const size_t n_rest = place->n_name - catalog->values.places[i].n_name;
    char *name = arena_chars(&catalog->arena, wishes[i].n_to + n_rest + 1);
    if (name == NULL)
        return -ENOMEM;
    memcpy(name, wishes[i].to, wishes[i].n_to);
    memcpy(name + wishes[i].n_to, place->name + catalog->values.places[i].n_name, n_rest);
    name[wishes[i].n_to + n_rest] = '\0';
    *ret = strcmp(name, value->name) == 0 ? NULL : name;
    return 0;
}

/* Skips names that a tensor has, or another value has or had. */
static int rename_values(const struct pass *pass, const struct wish wishes[],
                         struct text_index *seen, struct left *left)
{
    struct wfs_catalog *catalog = pass->catalog;
    uint32_t id;
    int code = 0;
    for_items(item, pass)
    {
        if (code == 0)
            code = text_index_add(seen, item->tensor.key, strlen(item->tensor.key), &id);
    }
    for (size_t i = 0; i < catalog->values.n && code == 0; i++)
        code = text_index_add(seen, catalog->values.list[i].name,
                              strlen(catalog->values.list[i].name), &id);
    for (size_t i = 0; i < catalog->values.n && code == 0; i++) {
        const uint32_t n_before = seen->n_texts;
        const char *name = NULL;
        if (catalog->values.list[i].place != 0)
            code = follow(catalog, wishes, &catalog->values.list[i], &name);
        if (code == 0 && name != NULL)
            code = text_index_add(seen, name, strlen(name), &id);
        if (code == 0 && seen->n_texts > n_before)
            catalog->values.list[i].name = name;
        else if (code == 0 && is_left(catalog, wishes, &catalog->values.list[i]) && left->n++ == 0)
            left->first = catalog->values.list[i].name;
    }
    return code;
}

static int warn_of_left(const struct pass *pass, const struct left *left)
{
    return left->n == 0 ? 0
                        : pass_warn(pass, left->first,
                                    "the tensors beside this value%s are renamed or hidden; rules "
                                    "are for tensors only",
                                    pass_more(left->n).text);
}

int pass_value_names(struct pass *pass)
{
    struct wfs_catalog *catalog = pass->catalog;
    if (catalog->values.n == 0 || catalog->values.n_places == 0 || !is_any_gone(pass))
        return 0;
    autofree struct wish *wishes = calloc((size_t)catalog->values.n_places + 1, sizeof(*wishes));
    if (wishes == NULL)
        return wfs_fail_memory(pass->err);
    for_items(item, pass)
    {
        if (item->tensor.place != 0)
            vote(catalog, wishes, &item->tensor);
    }
    for (size_t i = 0; i < pass->report->n_items; i++) {
        const struct item *item = &pass->report->items[i];
        if (item->tensor.place != 0 && (item_is_shown(item) || item->drop == DROP_FILTER))
            note_stay(catalog, wishes, item);
    }
    struct text_index seen = {0};
    struct left left = {0};
    const int code = rename_values(pass, wishes, &seen, &left);
    text_index_done(&seen);
    return code < 0 ? wfs_fail_memory(pass->err) : warn_of_left(pass, &left);
}
