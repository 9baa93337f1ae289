/* SPDX-License-Identifier: MIT */
/*
 * Keys that became one: an error, or a number after all but the first. Numbers are given when all
 * final keys are known, so that none of them takes a key that a later tensor has.
 *
 * Then names of values next to tensors. Rules apply to keys of tensors; a value goes where the
 * tensors go that have the longest prefix with it: it gets their new prefix, if it is one, and is
 * hidden with them, if the filters hide its name as well. Else it stays.
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
                        wfs_quote(wfs_tensor_origin(&first->tensor)).text,
                        wfs_quote(wfs_tensor_origin(&item->tensor)).text,
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

/* Where the tensors went that are below a prefix of the name of a value. */
struct wish {
    const char *to; /* n_to bytes of this are what the prefix became; NULL: no tensor is below */
    size_t n_to;
    bool is_split;  /* they do not agree */
    bool shows_any; /* filters show one */
    bool keeps_any; /* and one of those has still the prefix */
};

struct wishes {
    struct text_index prefixes;
    struct wish *of; /* malloc'ed, by prefix */
};

static void cleanup_wishes(struct wishes *wishes)
{
    text_index_done(&wishes->prefixes);
    free(wishes->of);
}

/* Values whose tensors have gone, and names that are taken. */
struct following {
    struct text_index seen;
    const char *first; /* of the values that are left behind */
    size_t n_left;
};

static void cleanup_following(struct following *following)
{
    text_index_done(&following->seen);
}

static bool is_any_gone(const struct pass *pass)
{
    for (size_t i = 0; i < pass->report->n_items; i++) {
        const struct item *item = &pass->report->items[i];
        if (item->drop == DROP_FILTER || item->tensor.key != wfs_tensor_origin(&item->tensor))
            return true;
    }
    return false;
}

/* Returns the bytes before the last dot among the first n; 0: there is none. */
static size_t cut_segment(const char *name, size_t n)
{
    while (n > 0 && name[--n] != '.')
        ;
    return n;
}

static int collect_prefixes(const struct wfs_catalog *catalog, struct wishes *wishes)
{
    for (size_t i = 0; i < catalog->values.n; i++) {
        const char *name = catalog->values.list[i].name;
        uint32_t id;
        for (size_t n = cut_segment(name, strlen(name)); n > 0; n = cut_segment(name, n)) {
            const uint32_t n_before = wishes->prefixes.n_texts;
            if (text_index_add(&wishes->prefixes, name, n, &id) < 0)
                return -ENOMEM;
            if (id != n_before)
                break; /* its own prefixes are known */
        }
    }
    wishes->of = calloc(wishes->prefixes.n_texts + 1, sizeof(*wishes->of));
    return wishes->of == NULL ? -ENOMEM : 0;
}

/* Counts a tensor that was called PREFIX + rest, by what precedes the rest in its key now. */
static void vote(struct wish *wish, const char *key, const char *rest)
{
    const size_t n_key = strlen(key), n_rest = strlen(rest);
    const bool is_top = rest[0] == '.' && strcmp(key, rest + 1) == 0;
    const bool fits = is_top || (n_key > n_rest && strcmp(key + n_key - n_rest, rest) == 0);
    const size_t n_to = fits && !is_top ? n_key - n_rest : 0;
    wish->is_split = wish->is_split || !fits ||
                     (wish->to != NULL && (wish->n_to != n_to || memcmp(wish->to, key, n_to) != 0));
    wish->to = key;
    wish->n_to = n_to;
}

static void cast_votes(const struct wishes *wishes, const struct item *item)
{
    const char *old = item->cut_key, *key = item->tensor.key;
    for (size_t n = strlen(old); n > 0; n = cut_segment(old, n)) {
        const uint32_t id = text_index_find(&wishes->prefixes, old, n);
        if (id == TEXT_INDEX_NONE)
            continue;
        struct wish *wish = &wishes->of[id];
        vote(wish, key, old + n);
        wish->shows_any = wish->shows_any || item_is_shown(item);
        if (item_is_shown(item) && strncmp(key, old, n) == 0 && (key[n] == '.' || key[n] == '\0'))
            wish->keeps_any = true;
    }
}

/* Returns the longest prefix of the name that has tensors below it, and its bytes; NULL: none. */
static const struct wish *find_wish(const struct wishes *wishes, const char *name, size_t *ret_n)
{
    for (size_t n = cut_segment(name, strlen(name)); n > 0; n = cut_segment(name, n)) {
        const struct wish *wish = &wishes->of[text_index_find(&wishes->prefixes, name, n)];
        *ret_n = n;
        if (wish->to != NULL)
            return wish;
    }
    return NULL;
}

/* Returns whether the value is an attribute of a tensor, or of the container of tensors. */
static bool is_of_tensor(const struct wfs_catalog *catalog, const struct catalog_value *value)
{
    return value->place != 0 && (catalog_tensor_around(catalog, value->place) != 0 ||
                                 catalog_is_attribute(catalog, value->place));
}

/* Makes the name with what its first n bytes have become. -ENOMEM. */
static int follow(struct wfs_catalog *catalog, const struct wish *wish, const char *name, size_t n,
                  const char **ret)
{
    const bool is_top = wish->n_to == 0;
    *ret = wish->is_split ? name
                          : arena_print(&catalog->arena, "%.*s%s", (int)wish->n_to, wish->to,
                                        name + n + is_top);
    return *ret == NULL ? -ENOMEM : 0;
}

/* Finds what becomes of a value: its name; NULL: the filters hide it. */
static int settle(const struct pass *pass, const struct wishes *wishes, struct following *following,
                  const struct catalog_value *value, const char **ret)
{
    struct wfs_catalog *catalog = pass->catalog;
    size_t n;
    const struct wish *wish = find_wish(wishes, value->name, &n);
    const char *name;
    *ret = value->name;
    if (wish == NULL)
        return 0;
    int code = follow(catalog, wish, value->name, n, &name);
    if (code == 0 && !wish->shows_any)
        code = pass_filter_value(pass, name);
    if (code < 0)
        return code;
    if (!wish->shows_any && code == 0) {
        report_add(pass->report, REPORT_SKIPPED, name, NULL);
        *ret = NULL;
        return 0;
    }
    uint32_t id;
    const uint32_t n_before = following->seen.n_texts;
    const bool moves = wish->shows_any && strcmp(name, value->name) != 0;
    if (moves && text_index_add(&following->seen, name, strlen(name), &id) < 0)
        return wfs_fail_memory(pass->err);
    if (following->seen.n_texts > n_before)
        *ret = name;
    else if ((moves || !wish->keeps_any) && !is_of_tensor(catalog, value) &&
             following->n_left++ == 0)
        following->first = value->name;
    return 0;
}

/* Notes the keys of tensors and the names of values, which no value may get. */
static int collect_seen(const struct pass *pass, struct following *following)
{
    const struct wfs_catalog *catalog = pass->catalog;
    uint32_t id;
    int code = 0;
    for_items(item, pass)
    {
        if (code == 0)
            code =
                text_index_add(&following->seen, item->tensor.key, strlen(item->tensor.key), &id);
    }
    for (size_t i = 0; i < catalog->values.n && code == 0; i++)
        code = text_index_add(&following->seen, catalog->values.list[i].name,
                              strlen(catalog->values.list[i].name), &id);
    return code;
}

int pass_value_names(struct pass *pass)
{
    struct catalog_values *values = &pass->catalog->values;
    cleanup(cleanup_wishes) struct wishes wishes = {0};
    cleanup(cleanup_following) struct following following = {0};
    if (values->n == 0 || !is_any_gone(pass))
        return 0;
    if (collect_prefixes(pass->catalog, &wishes) < 0 || collect_seen(pass, &following) < 0)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < pass->report->n_items; i++) {
        const struct item *item = &pass->report->items[i];
        if (item_is_shown(item) || item->drop == DROP_FILTER)
            cast_votes(&wishes, item);
    }
    size_t n_kept = 0;
    for (size_t i = 0; i < values->n; i++) {
        struct catalog_value *value = &values->list[i];
        const char *name;
        const int code = settle(pass, &wishes, &following, value, &name);
        if (code < 0)
            return code == -ENOMEM ? wfs_fail_memory(pass->err) : code;
        if (name == NULL)
            continue;
        values->list[n_kept] = *value;
        values->list[n_kept++].name = name;
    }
    values->n = n_kept;
    report_sort(pass->report, REPORT_SKIPPED);
    return following.n_left == 0
               ? 0
               : pass_warn(pass, following.first,
                           "the tensors beside this value%s are renamed or hidden, and it stays",
                           pass_more(following.n_left).text);
}
