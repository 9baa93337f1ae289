/* SPDX-License-Identifier: MIT */
/*
 * Metadata is a list: texts that change keep their place, new ones are added at the end. Where a
 * list has another order than that, all of it is removed and added again.
 */
#include "patch/patch_meta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int meta_index_init(struct meta_index *index, const struct wfs_text *list)
{
    size_t n = 0;
    *index = (struct meta_index){.list = list};
    for (const struct wfs_text *text = list; text != NULL; text = text->next)
        n++;
    index->texts = calloc(n + 1, sizeof(*index->texts));
    if (index->texts == NULL || text_index_reserve(&index->names, n) < 0)
        return -ENOMEM;
    for (const struct wfs_text *text = list; text != NULL; text = text->next) {
        uint32_t i;
        if (text_index_add(&index->names, text->name, strlen(text->name), &i) < 0)
            return -ENOMEM;
        index->texts[i] = text;
    }
    return 0;
}

const struct wfs_text *meta_index_find(const struct meta_index *index, const char *name)
{
    const uint32_t i = text_index_find(&index->names, name, strlen(name));
    return i == TEXT_INDEX_NONE ? NULL : index->texts[i];
}

void meta_index_done(struct meta_index *index)
{
    text_index_done(&index->names);
    free(index->texts);
}

static int add_meta(struct wfs_patch *patch, const struct wfs_text *was, const struct wfs_text *is)
{
    struct patch_meta *meta = patch_add_meta(patch);
    if (meta == NULL)
        return -ENOMEM;
    const char *name = was != NULL ? was->name : is->name;
    meta->name = arena_copy(&patch->arena, name, strlen(name));
    if (was != NULL) {
        meta->was = arena_copy(&patch->arena, was->value, was->n_bytes);
        meta->n_was = was->n_bytes;
    }
    if (is != NULL) {
        meta->value = arena_copy(&patch->arena, is->value, is->n_bytes);
        meta->n_value = is->n_bytes;
    }
    const bool is_complete = meta->name != NULL && (was == NULL || meta->was != NULL) &&
                             (is == NULL || meta->value != NULL);
    return is_complete ? 0 : -ENOMEM;
}

static bool is_same_text(const struct wfs_text *a, const struct wfs_text *b)
{
    return a->n_bytes == b->n_bytes && memcmp(a->value, b->value, a->n_bytes) == 0;
}

/* Returns whether texts that both have come in the same order, and new ones after them. */
static bool is_in_order(const struct meta_index *from, const struct meta_index *to)
{
    const struct wfs_text *is = to->list;
    for (const struct wfs_text *was = from->list; was != NULL; was = was->next) {
        if (meta_index_find(to, was->name) == NULL)
            continue;
        if (is == NULL || strcmp(was->name, is->name) != 0)
            return false;
        is = is->next;
    }
    return true;
}

static int compare(struct wfs_patch *patch, const struct meta_index *from,
                   const struct meta_index *to, bool takes_order)
{
    const bool keeps_order = !takes_order || is_in_order(from, to);
    for (const struct wfs_text *was = from->list; was != NULL; was = was->next) {
        if ((!keeps_order || meta_index_find(to, was->name) == NULL) &&
            add_meta(patch, was, NULL) < 0)
            return -ENOMEM;
    }
    for (const struct wfs_text *is = to->list; is != NULL; is = is->next) {
        const struct wfs_text *was = keeps_order ? meta_index_find(from, is->name) : NULL;
        if ((was == NULL || !is_same_text(was, is)) && add_meta(patch, was, is) < 0)
            return -ENOMEM;
    }
    return 0;
}

int patch_compare_meta(struct wfs_patch *patch, const struct wfs_text *from,
                       const struct wfs_text *to, bool takes_order)
{
    cleanup(meta_index_done) struct meta_index old = {0};
    cleanup(meta_index_done) struct meta_index new = {0};
    if (meta_index_init(&old, from) < 0 || meta_index_init(&new, to) < 0)
        return -ENOMEM;
    return compare(patch, &old, &new, takes_order);
}
