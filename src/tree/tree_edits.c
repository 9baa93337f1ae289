/* SPDX-License-Identifier: MIT */
/*
 * The list of the edits of a tree: for each file what it is made of, and what differs from that.
 * How it came about does not matter, and no content is read. A snapshot is the catalog with the
 * list applied. Names of one edited file share a source, so that savers see the tie.
 */
#include <weightfs/cleanup.h>
#include <weightfs/tree.h>
#include <weightfs/value.h>
#include "catalog/catalog.h"
#include "edits/edits.h"
#include "tensor/tensor.h"
#include "tree/control/texts.h"
#include "tree/file/description.h"
#include "tree/file/editfile.h"
#include "tree/file/outline.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct listing {
    const struct wfs_tree *tree;
    const struct wfs_tree_problems *problems; /* NULL: the first problem is an error */
    struct wfs_patch *patch;
    struct wfs_catalog *notes; /* gets what a commit reports; NULL: nothing does */
    struct outline outlines[PATCH_N_KINDS];
    struct patch_keys keys[PATCH_N_KINDS]; /* of what was loaded */
    bool *is_taken;                        /* of each loaded tensor or value of this kind */
    uint32_t *contents; /* of each node by its place in the pool: 1 + its content; 0: none yet */
    struct wfs_error *err;
};

/* ---- problems ---- */

/* Passes an error on as a problem of what is left out then; *ret_is_good: there is none. */
static int pass(const struct listing *listing, int code, bool *ret_is_good)
{
    *ret_is_good = code == 0;
    if (code == 0 || listing->problems == NULL || code == -ENOMEM)
        return code;
    listing->problems->visit(listing->problems->ctx, listing->err->text);
    *listing->err = (struct wfs_error){0};
    return 0;
}

static const char *path_of(const struct listing *listing, uint32_t id, struct arena *arena)
{
    autostrbuf struct strbuf path = {0};
    entry_path(listing->tree, id, &path);
    return path.has_failed ? NULL : arena_copy(arena, path.bytes, path.n_bytes);
}

static int fail_path(const struct listing *listing, uint32_t id, int code, const char *reason)
{
    return wfs_fail(listing->err, code, "'%s' %s", entry_quoted(listing->tree, id).text, reason);
}

/* ---- names ---- */

#define CUT_NAME "has a shortened name, and its key is not known: rename it"

static int fail_twins(const struct listing *listing, uint32_t one, const struct outline_item *other)
{
    return wfs_fail(listing->err, EINVAL,
                    "'%s' and '%s' both give the key '%s': rename one of them",
                    entry_quoted(listing->tree, one).text,
                    entry_quoted(listing->tree, other->entry).text, wfs_quote(other->key).text);
}

static int check_key(const struct listing *listing, const struct outline *outline,
                     const struct text_index *names, const struct outline_item *item)
{
    const char *reserved = listing->tree->options.reserved_key;
    if (item->key == NULL)
        return fail_path(listing, item->entry, EINVAL, CUT_NAME);
    const uint32_t twin = text_index_find(names, item->key, strlen(item->key));
    if (twin != TEXT_INDEX_NONE)
        return fail_twins(listing, outline->items[twin].entry, item);
    if (reserved != NULL && strcmp(item->key, reserved) == 0)
        return wfs_fail(listing->err, EINVAL, "'%s' gives a key that %s reserves: rename it",
                        entry_quoted(listing->tree, item->entry).text,
                        listing->tree->options.reserved_by);
    return 0;
}

/* No two files may give one key. Those that are a problem are left out, so that names have the
 * numbers of the items. */
static int check_keys(const struct listing *listing, struct outline *outline,
                      struct text_index *names)
{
    size_t n_good = 0;
    if (text_index_reserve(names, outline->n_items) < 0)
        return wfs_fail_memory(listing->err);
    for (size_t i = 0; i < outline->n_items; i++) {
        const struct outline_item item = outline->items[i];
        uint32_t number;
        bool is_good;
        const int code = pass(listing, check_key(listing, outline, names, &item), &is_good);
        if (code < 0)
            return code;
        if (!is_good)
            continue;
        if (text_index_add(names, item.key, strlen(item.key), &number) < 0)
            return wfs_fail_memory(listing->err);
        outline->items[n_good++] = item;
    }
    outline->n_items = n_good;
    return 0;
}

static bool has_loaded_name(const struct listing *listing, const struct outline_item *item)
{
    const size_t origin = valuefile_origin(listing->tree, item->entry, item->order);
    return origin != SIZE_MAX && item->key == patch_key(&listing->keys[PATCH_VALUES], origin);
}

/* names are those of the items, which are tensors and values with new names. */
static int check_name(const struct listing *listing, const struct outline *items,
                      const struct text_index *names, const struct outline_item *value)
{
    const struct patch_keys *keys = &listing->keys[PATCH_TENSORS];
    const uint32_t number = text_index_find(names, value->key, strlen(value->key));
    if (number == TEXT_INDEX_NONE)
        return 0;
    const struct outline_item *twin = &items->items[number];
    const bool was_loaded = twin->order < keys->n && twin->key == patch_key(keys, twin->order);
    return was_loaded ? 0 : fail_twins(listing, twin->entry, value);
}

/*
 * A tensor or value that is new or was renamed may not have the name of another one. Those that
 * were loaded may: "a.b" and the "b" of "a" are two things in a pickle.
 */
static int check_value_names(const struct listing *listing)
{
    const struct outline *tensors = &listing->outlines[PATCH_TENSORS];
    const struct outline *values = &listing->outlines[PATCH_VALUES];
    cleanup(text_index_done) struct text_index names = {0};
    struct outline all = {.n_items = tensors->n_items};
    if (values->n_items == 0)
        return 0;
    autofree struct outline_item *items = calloc(all.n_items + values->n_items, sizeof(*items));
    if (items == NULL)
        return wfs_fail_memory(listing->err);
    if (all.n_items > 0)
        memcpy(items, tensors->items, all.n_items * sizeof(*items));
    for (size_t i = 0; i < values->n_items; i++) {
        if (!has_loaded_name(listing, &values->items[i]))
            items[all.n_items++] = values->items[i];
    }
    all.items = items;
    bool is_good;
    int code = check_keys(listing, &all, &names);
    for (size_t i = 0; i < values->n_items && code == 0; i++) {
        if (has_loaded_name(listing, &values->items[i]))
            code = pass(listing, check_name(listing, &all, &names, &values->items[i]), &is_good);
    }
    return code;
}

/* ---- one tensor ---- */

static const struct wfs_node *node_of(const struct listing *listing,
                                      const struct outline_item *item)
{
    return entry_at(listing->tree, item->entry)->node;
}

/* Notes the path of an entry, and that of another one (0: none), for the report. */
static int add_note(const struct listing *listing, uint32_t id, uint32_t other,
                    const struct wfs_note **list)
{
    struct arena *arena = &listing->notes->arena;
    struct wfs_note *note = arena_calloc(arena, 1, sizeof(*note));
    if (note == NULL)
        return wfs_fail_memory(listing->err);
    note->path = path_of(listing, id, arena);
    note->other = other == 0 ? NULL : path_of(listing, other, arena);
    note->next = *list;
    *list = note;
    return note->path == NULL || (other != 0 && note->other == NULL) ? wfs_fail_memory(listing->err)
                                                                     : 0;
}

/* Describes the file as a tensor that can be committed. */
static int describe(const struct listing *listing, const struct outline_item *item,
                    const struct wfs_tensor *base, struct description *ret)
{
    const struct wfs_node *node = node_of(listing, item);
    if (edit_is_lost(node))
        return fail_path(listing, item->entry, EIO, "is lost: the staging directory failed");
    int code = sibling_describe(listing->tree, node, item->entry, &listing->patch->contents->arena,
                                ret, listing->err);
    if (code == 0)
        code = description_check(listing->tree, node, item->entry, ret, listing->err);
    if (code == 0 && ret->sibling != 0 && listing->notes != NULL)
        code = add_note(listing, item->entry, ret->sibling, &listing->notes->notes.described);
    if (code == 0 && !edit_is_staged(node) && wfs_tensor_trouble(base) != NULL)
        code = wfs_fail(listing->err, EIO, "'%s' cannot be read: %s", wfs_quote(item->key).text,
                        wfs_tensor_trouble(base));
    return code;
}

/* Names of one file share its content, unless only some of them hide a header of it. */
static int add_content(struct listing *listing, const struct wfs_node *node,
                       const struct description *description, const struct wfs_shape *shape,
                       uint32_t *ret)
{
    struct wfs_catalog *contents = listing->patch->contents;
    uint32_t *known = &listing->contents[node->id];
    struct wfs_tensor tensor = {
        .key = "",
        .dtype = description->dtype,
        .shape = *shape,
        .n_bytes = description->n_bytes,
        .stored = {.offset = description->data_offset, .dtype = description->dtype}};
    if (*known != 0) {
        const struct wfs_tensor *content = &contents->tensors[*known - 1];
        *ret = *known;
        if (content->stored.offset == tensor.stored.offset && content->n_bytes == tensor.n_bytes)
            return 0;
        tensor.stored.source = content->stored.source;
    } else if (node->edit->number != 0) {
        if (editfile_source(listing->tree, node, &tensor.stored.source) < 0 ||
            catalog_adopt_source(contents, tensor.stored.source) < 0)
            return -ENOMEM;
    }
    if (patch_add_content(listing->patch, &tensor, ret) < 0)
        return -ENOMEM;
    *known = *ret;
    return 0;
}

/* The shape is copied: who reads the list may do so without the tree, whose edits may own it. */
static int describe_tensor(struct listing *listing, const struct outline_item *item,
                           const struct wfs_tensor *base, struct patch_edit *edit)
{
    struct arena *arena = &listing->patch->contents->arena;
    const struct wfs_node *node = node_of(listing, item);
    const struct edit *own = node->edit;
    struct description description;
    const int code = describe(listing, item, base, &description);
    if (code < 0)
        return code;
    edit->shape = description.shape;
    edit->dtype = description.dtype;
    if ((own != NULL && shape_own(&edit->shape, arena) < 0) ||
        (edit_is_staged(node) &&
         add_content(listing, node, &description, &edit->shape, &edit->content) < 0))
        return wfs_fail_memory(listing->err);
    edit->has_dtype = edit->content != 0 || (own != NULL && own->has_dtype);
    edit->has_shape = edit->content != 0 || (own != NULL && own->has_shape);
    for (unsigned i = 0; own != NULL && i < TENSOR_N_TEXTS; i++) {
        if (own->texts[i] == NULL)
            continue;
        edit->texts[i] = arena_copy(arena, own->texts[i], strlen(own->texts[i]));
        if (edit->texts[i] == NULL)
            return wfs_fail_memory(listing->err);
    }
    if (base != NULL && (edit->has_dtype || edit->has_shape))
        patch_note_was(edit, base);
    return 0;
}

/* ---- one value ---- */

/* What is wrong with it is found when the list is applied, where its text is read. */
static int describe_value(struct listing *listing, const struct outline_item *item, size_t base,
                          struct patch_edit *edit)
{
    const struct wfs_node *node = node_of(listing, item);
    struct source *source;
    edit->path = path_of(listing, item->entry, &listing->patch->contents->arena);
    if (edit->path == NULL)
        return wfs_fail_memory(listing->err);
    if (item->key == NULL) {
        edit->to = "";
        edit->problem = (struct patch_problem){EINVAL, CUT_NAME};
        return 0;
    }
    if (!edit_is_staged(node))
        return 0;
    if (edit_is_lost(node))
        edit->problem = (struct patch_problem){EIO, "is lost: the staging directory failed"};
    else if (node->edit->n_bytes > PATCH_VALUE_MAX)
        edit->problem = (struct patch_problem){E2BIG, "is larger than 64 MiB, the limit for JSON"};
    if (editfile_source(listing->tree, node, &source) < 0 ||
        patch_add_bytes(listing->patch, source, &edit->content) < 0)
        return wfs_fail_memory(listing->err);
    if (base != SIZE_MAX)
        edit->was = (struct patch_was){.values = listing->tree->catalog, .value = base};
    return 0;
}

/* ---- one edit ---- */

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

static int add_edit(struct listing *listing, unsigned kind, const struct outline_item *item,
                    size_t base, bool is_copy)
{
    struct patch_edit edit = {.to = item->key, .is_copy = is_copy};
    if (base != SIZE_MAX)
        edit.from = patch_key(&listing->keys[kind], base);
    const int code =
        kind == PATCH_VALUES
            ? describe_value(listing, item, base, &edit)
            : describe_tensor(listing, item,
                              base == SIZE_MAX ? NULL : &listing->tree->catalog->tensors[base],
                              &edit);
    if (code < 0)
        return code;
    note_place(listing, kind, item, base, &edit);
    const bool is_described = edit.content != 0 || edit.has_dtype || edit.has_shape ||
                              edit.texts[TENSOR_PARAM_ID] != NULL ||
                              edit.texts[TENSOR_QUANTIZATION] != NULL;
    if (base != SIZE_MAX && !is_copy && !edit.has_place && !is_described &&
        strcmp(edit.from, edit.to) == 0)
        return 0;
    struct patch_edit *added = patch_add(listing->patch, kind);
    if (added == NULL)
        return wfs_fail_memory(listing->err);
    *added = edit;
    return 0;
}

/* ---- all edits ---- */

/* Of several files that are made of one loaded tensor, the one with its place is not a copy. */
static void take_own_places(struct listing *listing, unsigned kind, bool *is_copy)
{
    const struct outline *outline = &listing->outlines[kind];
    for (int is_second = 0; is_second < 2; is_second++) {
        for (size_t i = 0; i < outline->n_items; i++) {
            const struct outline_item *item = &outline->items[i];
            const size_t base = base_of(listing, kind, item);
            if (!is_second)
                is_copy[i] = base != SIZE_MAX;
            if (!is_copy[i] || listing->is_taken[base] ||
                (!is_second && item->order != first_order(listing, kind) + base))
                continue;
            listing->is_taken[base] = true;
            is_copy[i] = false;
        }
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
            return wfs_fail_memory(listing->err);
        edit->from = patch_key(keys, i);
    }
    return 0;
}

/* What is a problem is left out, and so is what it was made of. */
static int add_kind(struct listing *listing, unsigned kind)
{
    struct outline *outline = &listing->outlines[kind];
    autofree bool *is_taken = calloc(listing->keys[kind].n + 1, sizeof(*is_taken));
    autofree bool *is_copy = calloc(outline->n_items + 1, sizeof(*is_copy));
    if (is_taken == NULL || is_copy == NULL)
        return wfs_fail_memory(listing->err);
    listing->is_taken = is_taken;
    take_own_places(listing, kind, is_copy);
    size_t n_good = 0;
    for (size_t i = 0; i < outline->n_items; i++) {
        const struct outline_item item = outline->items[i];
        const size_t base = base_of(listing, kind, &item);
        bool is_good;
        const int code = pass(listing, add_edit(listing, kind, &item, base, is_copy[i]), &is_good);
        if (code < 0)
            return code;
        if (is_good)
            outline->items[n_good++] = item;
        else if (base != SIZE_MAX && !is_copy[i])
            is_taken[base] = false;
    }
    outline->n_items = n_good;
    return add_removed(listing, kind);
}

static int add_metadata(const struct listing *listing)
{
    const struct wfs_tree *tree = listing->tree;
    const struct wfs_node *file = entry_metadata(tree);
    const struct wfs_text *list;
    bool is_good;
    if (file != NULL && !edit_is_staged(file))
        return 0;
    const int code = pass(listing, metadata_list(tree, &list, listing->err), &is_good);
    if (code < 0)
        return code;
    return patch_compare_meta(listing->patch, wfs_catalog_meta(tree->catalog),
                              is_good ? list : NULL, true) < 0
               ? wfs_fail_memory(listing->err)
               : 0;
}

static int fill(struct listing *listing)
{
    const struct wfs_tree *tree = listing->tree;
    struct outline *tensors = &listing->outlines[PATCH_TENSORS];
    struct outline *values = &listing->outlines[PATCH_VALUES];
    cleanup(text_index_done) struct text_index names = {0};
    int code = outline_make(tree, &listing->patch->contents->arena, tensors, values);
    if (code < 0 && code != -ENOMEM)
        return wfs_fail(listing->err, -code, "cannot read the staging directory: %s",
                        strerror(-code));
    if (code < 0 || patch_keys_init(&listing->keys[PATCH_TENSORS], tree->catalog, false) < 0 ||
        patch_keys_init(&listing->keys[PATCH_VALUES], tree->catalog, true) < 0)
        return wfs_fail_memory(listing->err);
    for (unsigned kind = PATCH_N_KINDS; kind-- > 0 && listing->notes != NULL;) {
        const struct outline *outline = &listing->outlines[kind];
        for (size_t i = 0; i < outline->n_backups && code == 0; i++)
            code = add_note(listing, outline->backups[i], 0, &listing->notes->notes.backups);
    }
    if (code == 0)
        code = check_keys(listing, tensors, &names);
    if (code == 0)
        code = add_kind(listing, PATCH_TENSORS);
    if (code == 0)
        code = add_metadata(listing);
    if (code == 0)
        code = check_value_names(listing);
    return code < 0 ? code : add_kind(listing, PATCH_VALUES);
}

/* Makes the list, and in `notes`, unless NULL, what a commit reports. */
static int tree_edits(const struct wfs_tree *tree, const struct wfs_tree_problems *problems,
                      struct wfs_catalog *notes, struct wfs_patch **out, struct wfs_error *err)
{
    struct wfs_error own = {0};
    auto_patch struct wfs_patch *patch = NULL;
    autofree uint32_t *contents = calloc((size_t)tree->nodes.n_items + 1, sizeof(*contents));
    if (contents == NULL || wfs_patch_new(&patch) < 0)
        return wfs_fail_memory(err);
    struct listing listing = {.tree = tree,
                              .problems = problems,
                              .patch = patch,
                              .notes = notes,
                              .contents = contents,
                              .err = err == NULL ? &own : err};
    const int code = fill(&listing);
    for (unsigned kind = 0; kind < PATCH_N_KINDS; kind++) {
        patch_keys_done(&listing.keys[kind]);
        outline_done(&listing.outlines[kind]);
    }
    if (code == 0)
        *out = steal(&patch);
    return code;
}

/* ---- snapshots and patches ---- */

int wfs_tree_snapshot(const struct wfs_tree *tree, const struct wfs_tree_problems *problems,
                      struct wfs_catalog **out, struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *made = NULL;
    auto_patch struct wfs_patch *patch = NULL;
    if (catalog_new(&made) < 0)
        return wfs_fail_memory(err);
    int code = tree_edits(tree, problems, made, &patch, err);
    if (code == 0)
        code = patch_apply_own(patch, tree->catalog, problems == NULL ? NULL : problems->visit,
                               problems == NULL ? NULL : problems->ctx, made, err);
    if (code < 0)
        return code;
    if (catalog_adopt_part(made, steal(&patch->contents)) < 0)
        return wfs_fail_memory(err);
    const struct wfs_node *metadata = entry_metadata(tree);
    if (metadata == NULL || edit_is_staged(metadata))
        made->meta.exists = made->meta.first != NULL; /* an empty map goes with the file */
    *out = steal(&made);
    return 0;
}

/* What a commit would refuse is refused here, too. */
int wfs_tree_patch(const struct wfs_tree *tree, struct wfs_patch **out, struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *made = NULL;
    auto_patch struct wfs_patch *patch = NULL;
    if (catalog_new(&made) < 0)
        return wfs_fail_memory(err);
    int code = tree_edits(tree, NULL, NULL, &patch, err);
    if (code == 0)
        code = patch_apply_own(patch, tree->catalog, NULL, NULL, made, err);
    if (code == 0)
        *out = steal(&patch);
    return code;
}
