/* SPDX-License-Identifier: MIT */
/*
 * Keys must be unique when all is done; two that became one are an error, or get numbers.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/evidence/intern.h"
#include "view/pass.h"

/* The first of KEY_2, KEY_3, ... that nobody has. */
static const char *free_key(const struct pass *pass, const struct intern *keys, const char *key)
{
    for (unsigned i = 2; i < 1000000; i++) {
        char *text = arena_print(&pass->catalog->arena, "%s_%u", key, i);
        if (text == NULL || intern_find(keys, text, strlen(text)) == UINT32_MAX)
            return text;
    }
    return NULL;
}

static int resolve(struct pass *pass, struct intern *keys, const struct item *first,
                   struct item *item)
{
    uint32_t id;
    /* Twice in the file already, and no rule had a hand in it. */
    if (!item_is_renamed(first) && !item_is_renamed(item))
        return 0;
    if (pass->view->collision == COLLISION_ERROR)
        return wfs_fail(pass->err, EINVAL,
                        "'%s' and '%s' would both be called '%s'; on_collision=suffix numbers them",
                        wfs_quote(first->source_key).text, wfs_quote(item->source_key).text,
                        wfs_quote(item->tensor.key).text);
    const char *key = free_key(pass, keys, item->tensor.key);
    if (key == NULL || intern_add(keys, key, strlen(key), &id) < 0)
        return wfs_fail_memory(pass->err);
    return pass_rename(pass, item, key, "on_collision=suffix");
}

static void cleanup_intern(struct intern *intern)
{
    intern_done(intern);
}

int pass_collisions(struct pass *pass)
{
    cleanup(cleanup_intern) struct intern keys = {0};
    struct wfs_report *report = pass->report;
    autofree uint32_t *first_of = calloc(2 * report->n_items + 1, sizeof(*first_of));
    if (first_of == NULL)
        return wfs_fail_memory(pass->err);
    int code = 0;
    for_items(item, pass)
    {
        uint32_t id;
        const uint32_t n_before = keys.n_texts;
        if (code < 0 || intern_add(&keys, item->tensor.key, strlen(item->tensor.key), &id) < 0)
            return code < 0 ? code : wfs_fail_memory(pass->err);
        if (id == n_before)
            first_of[id] = (uint32_t)(item - report->items);
        else
            code = resolve(pass, &keys, &report->items[first_of[id]], item);
    }
    return code;
}
