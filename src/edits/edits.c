/* SPDX-License-Identifier: MIT */
/*
 * Edits, contents, and what both are counted and shown as.
 */
#include "edits/edits.h"

#include <weightfs/array.h>
#include <weightfs/patch.h>
#include <weightfs/strbuf.h>
#include <weightfs/value.h>
#include <weightfs/workload.h>
#include "base/arena.h"
#include "base/hash.h"
#include "base/text_index.h"
#include "catalog/catalog.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int wfs_patch_new(struct wfs_patch **out)
{
    auto_patch struct wfs_patch *patch = calloc(1, sizeof(*patch));
    if (patch == NULL || catalog_new(&patch->contents) < 0)
        return -ENOMEM;
    *out = steal(&patch);
    return 0;
}

static void requests_free(struct patch_requests *requests)
{
    if (requests == NULL)
        return;
    for (unsigned kind = 0; kind < PATCH_N_KINDS; kind++) {
        patch_keys_done(&requests->keys[kind]);
        text_index_done(&requests->made[kind].keys);
        text_index_done(&requests->taken[kind].keys);
        free(requests->made[kind].edits);
        free(requests->taken[kind].edits);
    }
    meta_index_done(&requests->metas);
    text_index_done(&requests->edited_metas);
    free(requests);
}

void wfs_patch_free(struct wfs_patch *patch)
{
    if (patch == NULL)
        return;
    for (unsigned kind = 0; kind < PATCH_N_KINDS; kind++)
        free(patch->edits[kind].items);
    free(patch->metas);
    requests_free(patch->requests);
    wfs_catalog_free(patch->contents);
    free(patch);
}

struct patch_edit *patch_add(struct wfs_patch *patch, unsigned kind)
{
    struct patch_edits *edits = &patch->edits[kind];
    if (array_reserve(&edits->items, sizeof(*edits->items), edits->n_items, 1, &edits->n_room) < 0)
        return NULL;
    struct patch_edit *edit = &edits->items[edits->n_items++];
    *edit = (struct patch_edit){0};
    return edit;
}

struct patch_meta *patch_add_meta(struct wfs_patch *patch)
{
    if (array_reserve(&patch->metas, sizeof(*patch->metas), patch->n_metas, 1,
                      &patch->n_meta_room) < 0)
        return NULL;
    struct patch_meta *meta = &patch->metas[patch->n_metas++];
    *meta = (struct patch_meta){0};
    return meta;
}

int patch_add_content(struct wfs_patch *patch, const struct wfs_tensor *tensor, uint32_t *ret)
{
    struct wfs_tensor *content = catalog_add(patch->contents);
    if (content == NULL)
        return -ENOMEM;
    *content = (struct wfs_tensor){.key = tensor->key,
                                   .shape = tensor->shape,
                                   .n_bytes = tensor->n_bytes,
                                   .stored = tensor->stored,
                                   .dtype = tensor->dtype,
                                   .trouble = tensor->trouble};
    *ret = (uint32_t)patch->contents->n_tensors;
    return 0;
}

int patch_add_bytes(struct wfs_patch *patch, struct source *source, uint32_t *ret)
{
    if (catalog_adopt_source(patch->contents, source) < 0)
        return -ENOMEM;
    uint64_t *dims = arena_calloc(&patch->contents->arena, 1, sizeof(*dims));
    if (dims == NULL)
        return -ENOMEM;
    dims[0] = source->n_bytes;
    const struct wfs_tensor tensor = {.key = "",
                                      .dtype = WFS_U8,
                                      .shape = {1, dims},
                                      .n_bytes = source->n_bytes,
                                      .stored = {.source = source, .dtype = WFS_U8}};
    return patch_add_content(patch, &tensor, ret);
}

struct wfs_access wfs_patch_access(const struct wfs_patch *patch)
{
    return patch->access;
}

void patch_note_was(struct patch_edit *edit, const struct wfs_tensor *tensor)
{
    edit->was = (struct patch_was){
        .is_known = true,
        .dtype = tensor->dtype,
        .shape = tensor->shape,
        .tensor = edit->content != 0 && !wfs_tensor_is_large(tensor) ? tensor : NULL};
}

/* ---- keys ---- */

const char *patch_key(const struct patch_keys *keys, size_t i)
{
    return keys->is_value ? wfs_catalog_value_name(keys->catalog, i)
                          : wfs_catalog_tensor(keys->catalog, i)->key;
}

struct query {
    const struct patch_keys *keys;
    const char *key;
};

static bool is_match(const void *ctx, uint32_t i)
{
    const struct query *query = ctx;
    return strcmp(patch_key(query->keys, i), query->key) == 0;
}

int patch_keys_init(struct patch_keys *keys, const struct wfs_catalog *catalog, bool is_value)
{
    *keys = (struct patch_keys){catalog, is_value, {0}, 0};
    keys->n = is_value ? wfs_catalog_n_values(catalog) : wfs_catalog_n_tensors(catalog);
    if (keys->n >= UINT32_MAX || map_reserve(&keys->map, (uint32_t)keys->n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < keys->n; i++) {
        const char *key = patch_key(keys, i);
        if (map_add(&keys->map, hash_bytes(key, strlen(key), hash_seed()), (uint32_t)i) < 0)
            return -ENOMEM;
    }
    return 0;
}

size_t patch_keys_find(const struct patch_keys *keys, const char *key)
{
    const struct query query = {keys, key};
    uint32_t i;
    return map_find(&keys->map, hash_bytes(key, strlen(key), hash_seed()), is_match, &query, &i)
               ? i
               : SIZE_MAX;
}

void patch_keys_done(struct patch_keys *keys)
{
    map_done(&keys->map);
}

/* ---- what there is ---- */

void wfs_patch_count(const struct wfs_patch *patch, struct wfs_patch_counts *ret)
{
    *ret = (struct wfs_patch_counts){.n_values = patch->edits[PATCH_VALUES].n_items,
                                     .n_metadata = patch->n_metas};
    for (size_t i = 0; i < patch->edits[PATCH_TENSORS].n_items; i++) {
        const struct patch_edit *edit = &patch->edits[PATCH_TENSORS].items[i];
        if (edit->to == NULL)
            ret->n_removed++;
        else if (edit->from == NULL || edit->is_copy)
            ret->n_added++;
        else if (edit->content != 0)
            ret->n_replaced++;
        else if (strcmp(edit->from, edit->to) != 0)
            ret->n_renamed++;
        else
            ret->n_described++;
    }
}

uint64_t wfs_patch_n_edits(const struct wfs_patch *patch)
{
    return patch->edits[PATCH_TENSORS].n_items + patch->edits[PATCH_VALUES].n_items +
           patch->n_metas;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **wfs_patch_keys(const struct wfs_patch *patch, size_t *ret_n)
{
    const struct patch_edits *edits = &patch->edits[PATCH_TENSORS];
    const char **keys = calloc(edits->n_items + 1, sizeof(*keys));
    *ret_n = 0;
    for (size_t i = 0; i < edits->n_items && keys != NULL; i++) {
        if (edits->items[i].to != NULL)
            keys[(*ret_n)++] = edits->items[i].to;
    }
    if (keys != NULL)
        qsort(keys, *ret_n, sizeof(*keys), compare_texts);
    return keys;
}

static int compare_renames(const void *a, const void *b)
{
    const struct wfs_patch_rename *x = a, *y = b;
    return strcmp(x->from, y->from);
}

struct wfs_patch_rename *wfs_patch_renames(const struct wfs_patch *patch, size_t *ret_n)
{
    const struct patch_edits *edits = &patch->edits[PATCH_TENSORS];
    struct wfs_patch_rename *renames = calloc(edits->n_items + 1, sizeof(*renames));
    *ret_n = 0;
    for (size_t i = 0; i < edits->n_items && renames != NULL; i++) {
        const struct patch_edit *edit = &edits->items[i];
        if (edit->from != NULL && edit->to != NULL && strcmp(edit->from, edit->to) != 0 &&
            !edit->is_copy && edit->content == 0 && !edit->has_dtype && !edit->has_shape)
            renames[(*ret_n)++] = (struct wfs_patch_rename){edit->from, edit->to};
    }
    if (renames != NULL)
        qsort(renames, *ret_n, sizeof(*renames), compare_renames);
    return renames;
}

static void describe(const struct wfs_patch *patch, const struct patch_edit *edit, bool is_value,
                     struct strbuf *line)
{
    const char *what = is_value ? "value" : "tensor";
    const struct wfs_tensor *content =
        edit->content == 0 ? NULL : wfs_catalog_tensor(patch->contents, edit->content - 1);
    if (edit->to == NULL) {
        strbuf_printf(line, "removed %s '%s'", what, wfs_quote(edit->from).text);
        return;
    }
    if (edit->from == NULL)
        strbuf_printf(line, "added %s '%s'", what, wfs_quote(edit->to).text);
    else if (edit->is_copy)
        strbuf_printf(line, "linked %s '%s' to '%s'", what, wfs_quote(edit->to).text,
                      wfs_quote(edit->from).text);
    else if (strcmp(edit->from, edit->to) != 0)
        strbuf_printf(line, "renamed %s '%s' to '%s'", what, wfs_quote(edit->from).text,
                      wfs_quote(edit->to).text);
    else
        strbuf_printf(line, "%s %s '%s'", content != NULL ? "replaced" : "changed", what,
                      wfs_quote(edit->to).text);
    if (edit->has_dtype)
        strbuf_printf(line, ", %s", wfs_dtype_name((enum wfs_dtype)edit->dtype));
    if (edit->has_shape) {
        char shape[128];
        const size_t n = wfs_shape_format(&edit->shape, shape, sizeof(shape));
        strbuf_printf(line, "%s %s%s", edit->has_dtype ? "" : ",", shape,
                      n >= sizeof(shape) ? "..." : "");
    }
    if (content != NULL)
        strbuf_printf(line, ", %s", wfs_count(content->n_bytes, "byte").text);
    for (unsigned i = 0; i < TENSOR_N_TEXTS; i++) {
        if (edit->texts[i] != NULL)
            strbuf_printf(line, ", %s '%s'", tensor_text_names[i], wfs_quote(edit->texts[i]).text);
    }
}

int wfs_patch_each(const struct wfs_patch *patch, int (*visit)(void *ctx, const char *line),
                   void *ctx)
{
    autostrbuf struct strbuf line = {0};
    int code = 0;
    for (unsigned kind = 0; kind < PATCH_N_KINDS; kind++) {
        for (size_t i = 0; i < patch->edits[kind].n_items && code == 0; i++) {
            line.n_bytes = 0;
            describe(patch, &patch->edits[kind].items[i], kind == PATCH_VALUES, &line);
            code = line.has_failed ? -ENOMEM : visit(ctx, line.bytes);
        }
    }
    for (size_t i = 0; i < patch->n_metas && code == 0; i++) {
        const struct patch_meta *meta = &patch->metas[i];
        line.n_bytes = 0;
        strbuf_printf(&line, "%s metadata '%s'", meta->value == NULL ? "removed" : "set",
                      wfs_quote(meta->name).text);
        code = line.has_failed ? -ENOMEM : visit(ctx, line.bytes);
    }
    return code;
}

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
    meta->name = arena_copy(&patch->contents->arena, name, strlen(name));
    if (was != NULL) {
        meta->was = arena_copy(&patch->contents->arena, was->value, was->n_bytes);
        meta->n_was = was->n_bytes;
    }
    if (is != NULL) {
        meta->value = arena_copy(&patch->contents->arena, is->value, is->n_bytes);
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
