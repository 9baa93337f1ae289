/* SPDX-License-Identifier: MIT */
/*
 * Keys that became one: an error, or a number after all but the first. Numbers are given when all
 * final keys are known, so that none of them takes a key that a later tensor has.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_index.h"
#include "view/pass.h"

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
