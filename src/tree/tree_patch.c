/* SPDX-License-Identifier: MIT */
/*
 * The edits of a tree as a patch: for each file what it is made of, and what differs from that. How
 * it came about does not matter.
 */
#include <weightfs/cleanup.h>
#include <weightfs/tree.h>
#include <weightfs/value.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "patch/patch.h"
#include "tree/file/description.h"
#include "tree/file/editfile.h"
#include "tree/file/outline.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"

struct listing {
    const struct wfs_tree *tree;
    struct wfs_patch *patch;
    struct patch_keys keys[PATCH_N_KINDS]; /* of what was loaded */
    bool *is_taken;                        /* of each loaded tensor or value of this kind */
    uint32_t *contents; /* of each node by its place in the pool: 1 + its content; 0: none yet */
    struct wfs_error *err;
};

static const struct wfs_node *node_of(const struct listing *listing,
                                      const struct outline_item *item)
{
    return entry_at(listing->tree, item->entry)->node;
}

/* Returns which of the loaded ones the file is made of, or SIZE_MAX. */
static size_t base_of(const struct listing *listing, unsigned kind, const struct outline_item *item)
{
    const struct wfs_catalog *catalog = listing->tree->catalog;
    if (kind == PATCH_VALUES)
        return valuefile_origin(listing->tree, item->entry, item->order);
    const struct wfs_tensor *base =
        description_base(listing->tree, node_of(listing, item), item->entry);
    return base == NULL ? SIZE_MAX : (size_t)(base - catalog->tensors);
}

/* Orders count tensors, then values. */
static uint32_t first_order(const struct listing *listing, unsigned kind)
{
    return kind == PATCH_VALUES ? (uint32_t)listing->keys[PATCH_TENSORS].n : 0;
}

/* ---- one edit ---- */

/* Notes the place in the output where it is not the one that follows from the keys. */
static void note_place(const struct listing *listing, unsigned kind,
                       const struct outline_item *item, size_t base, struct patch_edit *edit)
{
    const size_t n_tensors = listing->keys[PATCH_TENSORS].n;
    const size_t implied =
        base != SIZE_MAX && !edit->is_copy ? base : patch_keys_find(&listing->keys[kind], edit->to);
    const uint32_t order =
        implied == SIZE_MAX ? ORDER_NEW : first_order(listing, kind) + (uint32_t)implied;
    if (item->order == order)
        return;
    edit->has_place = true;
    edit->is_place_of_value = item->order != ORDER_NEW && item->order >= n_tensors;
    if (item->order != ORDER_NEW)
        edit->place = edit->is_place_of_value
                          ? patch_key(&listing->keys[PATCH_VALUES], item->order - n_tensors)
                          : patch_key(&listing->keys[PATCH_TENSORS], item->order);
}

/* tensor is that of the snapshot. Names of one file share its content. */
static int describe_tensor(struct listing *listing, const struct wfs_node *node,
                           const struct wfs_tensor *tensor, struct patch_edit *edit)
{
    const struct edit *own = node->edit;
    if (edit_is_staged(node)) {
        uint32_t *content = &listing->contents[node->id];
        if (*content == 0 && patch_add_content(listing->patch, tensor, content) < 0)
            return -ENOMEM;
        edit->content = *content;
    }
    edit->has_dtype = edit->content != 0 || (own != NULL && own->has_dtype);
    edit->has_shape = edit->content != 0 || (own != NULL && own->has_shape);
    edit->dtype = tensor->dtype;
    edit->shape = tensor->shape;
    for (unsigned i = 0; own != NULL && i < TENSOR_N_TEXTS; i++) {
        const size_t n = own->texts[i] == NULL ? 0 : strlen(own->texts[i]);
        if (own->texts[i] == NULL)
            continue;
        edit->texts[i] = arena_copy(&listing->patch->arena, own->texts[i], n);
        if (edit->texts[i] == NULL)
            return -ENOMEM;
    }
    return 0;
}

static int describe_value(struct listing *listing, const struct wfs_node *node, size_t base,
                          struct patch_edit *edit)
{
    struct source *source;
    autofree char *text = NULL;
    size_t n_bytes;
    if (!edit_is_staged(node))
        return 0;
    if (editfile_source(listing->tree, node, &source) < 0 ||
        patch_add_bytes(listing->patch, source, &edit->content) < 0)
        return -ENOMEM;
    if (base == SIZE_MAX)
        return 0;
    const int code = wfs_catalog_value_text(listing->tree->catalog, base, &text, &n_bytes);
    if (code == 0)
        edit->was = (struct patch_was){.has_digest = true, .digest = hash_bytes(text, n_bytes, 0)};
    return code;
}

static bool is_described(const struct patch_edit *edit)
{
    bool has_text = false;
    for (unsigned i = 0; i < TENSOR_N_TEXTS; i++)
        has_text |= edit->texts[i] != NULL;
    return edit->content != 0 || edit->has_dtype || edit->has_shape || has_text;
}

static int add_edit(struct listing *listing, unsigned kind, const struct outline_item *item,
                    const struct wfs_tensor *tensor, bool is_copy)
{
    const struct wfs_node *node = node_of(listing, item);
    const size_t base = base_of(listing, kind, item);
    struct patch_edit edit = {.to = item->key, .is_copy = is_copy};
    if (base != SIZE_MAX)
        edit.from = patch_key(&listing->keys[kind], base);
    const int code = kind == PATCH_VALUES ? describe_value(listing, node, base, &edit)
                                          : describe_tensor(listing, node, tensor, &edit);
    if (code < 0)
        return code;
    note_place(listing, kind, item, base, &edit);
    if (base != SIZE_MAX && !is_copy && !edit.has_place && !is_described(&edit) &&
        strcmp(edit.from, edit.to) == 0)
        return 0;
    if (kind == PATCH_TENSORS && base != SIZE_MAX &&
        (edit.content != 0 || edit.has_dtype || edit.has_shape))
        patch_note_was(&edit, wfs_catalog_tensor(listing->tree->catalog, base));
    struct patch_edit *added = patch_add(listing->patch, kind);
    if (added == NULL)
        return -ENOMEM;
    *added = edit;
    return 0;
}

/* ---- all edits ---- */

/* Of several files that are made of one loaded tensor, the one with its place is not a copy. */
static void take_own_places(struct listing *listing, unsigned kind, const struct outline *outline,
                            bool *is_copy)
{
    for (size_t i = 0; i < outline->n_items; i++) {
        const struct outline_item *item = &outline->items[i];
        const size_t base = base_of(listing, kind, item);
        is_copy[i] = base != SIZE_MAX;
        if (base == SIZE_MAX || listing->is_taken[base] ||
            item->order != first_order(listing, kind) + base)
            continue;
        listing->is_taken[base] = true;
        is_copy[i] = false;
    }
    for (size_t i = 0; i < outline->n_items; i++) {
        const size_t base = is_copy[i] ? base_of(listing, kind, &outline->items[i]) : SIZE_MAX;
        if (base == SIZE_MAX || listing->is_taken[base])
            continue;
        listing->is_taken[base] = true;
        is_copy[i] = false;
    }
}

static int add_removed(struct listing *listing, unsigned kind)
{
    const struct patch_keys *keys = &listing->keys[kind];
    for (size_t i = 0; i < keys->n; i++) {
        if (listing->is_taken[i] || (kind == PATCH_VALUES && !valuefile_is_shown(listing->tree, i)))
            continue;
        struct patch_edit *edit = patch_add(listing->patch, kind);
        if (edit == NULL)
            return -ENOMEM;
        edit->from = patch_key(keys, i);
    }
    return 0;
}

static int add_kind(struct listing *listing, unsigned kind, const struct outline *outline)
{
    const struct wfs_catalog *snapshot = listing->patch->kept;
    autofree bool *is_taken = calloc(listing->keys[kind].n + 1, sizeof(*is_taken));
    autofree bool *is_copy = calloc(outline->n_items + 1, sizeof(*is_copy));
    if (is_taken == NULL || is_copy == NULL)
        return -ENOMEM;
    listing->is_taken = is_taken;
    take_own_places(listing, kind, outline, is_copy);
    for (size_t i = 0; i < outline->n_items; i++) {
        const struct wfs_tensor *tensor =
            kind == PATCH_TENSORS ? wfs_catalog_tensor(snapshot, i) : NULL;
        const int code = add_edit(listing, kind, &outline->items[i], tensor, is_copy[i]);
        if (code < 0)
            return code;
    }
    return add_removed(listing, kind);
}

static int fill(struct listing *listing)
{
    const struct wfs_tree *tree = listing->tree;
    struct wfs_patch *patch = listing->patch;
    cleanup(outline_done) struct outline tensors = {0};
    cleanup(outline_done) struct outline values = {0};
    int code = wfs_tree_snapshot(tree, &patch->kept, listing->err);
    if (code < 0)
        return code;
    for (unsigned kind = 0; kind < PATCH_N_KINDS; kind++) {
        if (patch_keys_init(&listing->keys[kind], tree->catalog, kind == PATCH_VALUES) < 0)
            return -ENOMEM;
    }
    code = outline_make(tree, &patch->arena, &tensors, &values);
    if (code == 0)
        code = add_kind(listing, PATCH_TENSORS, &tensors);
    if (code == 0)
        code = add_kind(listing, PATCH_VALUES, &values);
    return code < 0 ? code
                    : patch_compare_meta(patch, wfs_catalog_meta(tree->catalog),
                                         wfs_catalog_meta(patch->kept), true);
}

int wfs_tree_patch(const struct wfs_tree *tree, struct wfs_patch **out, struct wfs_error *err)
{
    auto_patch struct wfs_patch *patch = NULL;
    struct listing listing = {.tree = tree, .err = err};
    autofree uint32_t *contents = calloc((size_t)tree->nodes.n_items + 1, sizeof(*contents));
    if (contents == NULL || wfs_patch_new(&patch) < 0)
        return wfs_fail_memory(err);
    listing.contents = contents;
    listing.patch = patch;
    const int code = fill(&listing);
    for (unsigned kind = 0; kind < PATCH_N_KINDS; kind++)
        patch_keys_done(&listing.keys[kind]);
    if (code < 0)
        return wfs_fail(err, -code, "cannot list the edits: %s", strerror(-code));
    *out = steal(&patch);
    return 0;
}
