/* SPDX-License-Identifier: MIT */
/*
 * From the graph to named tensors and values: each step of the walk lists one value, or goes into
 * it.
 */
#include "format/pytorch/object/torch_listing.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/core/nul_key.h"
#include "format/pytorch/object/torch_builder.h"
#include "format/pytorch/object/torch_composite.h"
#include "format/pytorch/object/torch_marks.h"
#include "format/pytorch/object/torch_object.h"

/* Returns the key of the dict when it is the whole path; otherwise NULL. */
static const char *lasting_path(const struct walk *walk)
{
    const struct value *key = walk->key == 0 ? NULL : graph_at(walk->graph, walk->key);
    return key != NULL && key->kind == VALUE_TEXT && key->n == walk->path.n_bytes && key->n > 0 &&
                   memcmp(key->text, walk->path.bytes, key->n) == 0
               ? key->text
               : NULL;
}

/* A long key of a dict is a part of the names of all that is in it, so that a small pickle can make
 * names without end. */
static uint64_t names_most(const struct torch *torch)
{
    enum { N_FREE = 16 << 20, N_TIMES = 64 };
    const uint64_t n_pickle = torch->limits->pickle - torch->budget.n_bytes;
    const uint64_t n_most =
        n_pickle < UINT64_MAX / N_TIMES - N_FREE ? N_FREE + N_TIMES * n_pickle : UINT64_MAX;
    return n_most < torch->limits->names ? n_most : torch->limits->names;
}

/* Makes the path a text of the arena, different from all others. */
static int make_key(struct walk *walk, struct names *names, const char **ret)
{
    struct torch *torch = walk->torch;
    if (walk->path.is_cut)
        return wfs_fail_memory(torch->err);
    if (walk->path.n_bytes > torch->limits->key)
        return wfs_fail(torch->err, E2BIG, "the key %s... is above the limit of %s (key)",
                        wfs_quote_n(walk->path.bytes, walk->path.n_bytes).text,
                        wfs_count(torch->limits->key, "byte").text);
    torch->n_names += walk->path.n_bytes + 1;
    const uint64_t n_most = names_most(torch);
    if (torch->n_names > n_most)
        return wfs_fail(torch->err, E2BIG, "all keys take more than %s (limit names)",
                        wfs_count(n_most, "byte").text);
    const int code = names_make(names, &torch->catalog->arena, walk->path.bytes, walk->path.n_bytes,
                                lasting_path(walk), ret);
    return code < 0 ? wfs_fail_memory(torch->err) : 0;
}

static int add_value(struct walk *walk, uint32_t id)
{
    const char *name;
    if (walk->torch->catalog->n_values >= walk->torch->limits->tensors)
        return wfs_fail(walk->torch->err, E2BIG, "more than %s beside the tensors (limit tensors)",
                        wfs_count(walk->torch->limits->tensors, "value").text);
    const int code = make_key(walk, &walk->torch->value_names, &name);
    if (code < 0)
        return code;
    const uint32_t place = walk_add_place(walk, id, name);
    if (place == 0 || catalog_add_value(walk->torch->catalog, name, id, place) < 0)
        return wfs_fail_memory(walk->torch->err);
    walk->torch->catalog->places[place].kind = PLACE_VALUE;
    return 0;
}

/* Gives a part of a composite tensor the text about the whole. */
static void set_part_text(struct walk *walk, struct torch_tensor *tensor)
{
    const struct frame *frame = walk->n_frames == 0 ? NULL : &walk->frames[walk->n_frames - 1];
    if (frame == NULL || frame->whole == 0 || tensor->attr_value != NULL)
        return;
    tensor->attr_value =
        torch_composite_text(walk->torch, graph_at(walk->graph, frame->whole), &tensor->attr_name);
}

static int visit_pending(struct walk *walk);

static int add_tensor(struct walk *walk, uint32_t id, struct torch_tensor *tensor)
{
    const char *key;
    const char *name;
    const bool has_nul = walk->n_to_nul > 0;
    if (has_nul && !walk->torch->is_forced && !walk->torch->escapes_nul)
        return wfs_fail(walk->torch->err, EOPNOTSUPP,
                        "the key '%s' contains a NUL (%%00), which no file name can" NUL_KEY_HINT,
                        wfs_quote_n(walk->path.bytes, walk->path.n_bytes).text);
    int code = make_key(walk, &walk->torch->names, &key);
    if (code < 0)
        return code;
    set_part_text(walk, tensor);
    const uint32_t place = walk_add_place(walk, id, key);
    if (place == 0)
        return wfs_fail_memory(walk->torch->err);
    if ((code = torch_tensor_add(walk->torch, key, place, tensor)) < 0)
        return code;
    struct wfs_catalog *catalog = walk->torch->catalog;
    catalog->tensors[catalog->n_tensors - 1].has_nul = has_nul;
    if (walk->role != NULL && catalog_add_attr(catalog, &catalog->tensors[catalog->n_tensors - 1],
                                               "role", walk->role) < 0)
        return wfs_fail_memory(walk->torch->err);
    /* Parts and attributes are named after the tensor. */
    walk->holder = place;
    if (torch_composite_part(walk->graph, graph_at(walk->graph, id), 0, &name) != 0)
        code = walk_enter(walk, WALK_PARTS, id);
    if (code == 0 && tensor->state != 0)
        code = object_enter_state(walk, tensor->state);
    if (code == 0)
        code = visit_pending(walk);
    walk->holder = 0;
    return code;
}

/* Goes into a module. The whole of an outermost one is also listed as a value. */
static int enter_module(struct walk *walk, uint32_t id)
{
    const bool is_outermost = walk->n_modules == 0;
    const int code = walk_enter(walk, WALK_MODULE, id);
    if (code < 0 || !is_outermost || walk->n_modules == 0)
        return code;
    walk_add_name(walk, "__dict__");
    return add_value(walk, id);
}

/* Lists a value under the current path, or goes into it. */
static int visit(struct walk *walk, uint32_t id)
{
    const struct value *value = graph_at(walk->graph, id);
    struct torch_tensor tensor;
    /* A parameter can be an attribute too (as in an LSTM), and so can a module; attributes without
     * tensors are in the value of the whole module. */
    if (walk->role != NULL && !walk->is_owned &&
        (!torch_has_tensor(walk->graph, id) || (value->marks & MARK_OWNED) != 0))
        return 0;
    if (!torch_has_tensor(walk->graph, id))
        return add_value(walk, id);
    if (value_has_items(value))
        return walk_enter(walk, value->kind == VALUE_DICT ? WALK_PAIRS : WALK_ITEMS, id);
    if (torch_is_composite(walk->graph, value))
        return walk_enter(walk, WALK_PARTS, id);
    if (object_is_wrapper(walk, value))
        return walk_enter(walk, WALK_WRAPPER, id);
    const int code = torch_builder_read(walk->torch, id, &tensor);
    if (code != 0)
        return code < 0 ? code : add_tensor(walk, id, &tensor);
    if (object_is_module(walk, value))
        return enter_module(walk, id);
    return value->kind == VALUE_CALL ? walk_enter(walk, WALK_CALL, id) : add_value(walk, id);
}

static int visit_pending(struct walk *walk)
{
    const uint32_t id = walk->pending;
    walk->pending = 0;
    return id == 0 ? 0 : visit(walk, id);
}

/* Lists the next item of a list, tuple or set. */
static int step_items(struct walk *walk, struct frame *frame)
{
    const struct value *value = graph_at(walk->graph, frame->id);
    if (frame->next >= value->n)
        return 1;
    const uint32_t i = frame->next++, item = value_items(value)[i];
    const bool is_item = frame->mode == WALK_ITEMS;
    if (!is_item && !torch_has_tensor(walk->graph, item))
        return 0;
    walk_add_number(walk, is_item ? "" : "%arg", frame->mode == WALK_BOUND_ARGS ? i - 1 : i);
    walk->item = i;
    walk->pending = item;
    return 0;
}

/* Returns whether it is the key of one of the dicts that are listed before the attributes. */
static bool is_own_dict(const struct walk *walk, const struct frame *frame, uint32_t key)
{
    for (unsigned i = 0; frame->is_attributes && i < TORCH_N_OWNED; i++)
        if (value_is_text(walk->graph, key, torch_owned[i]))
            return true;
    return false;
}

/* Lists the next item of a dict. */
static int step_pairs(struct walk *walk, struct frame *frame)
{
    const struct value *value = graph_at(walk->graph, frame->id);
    if (frame->next >= value->n)
        return 1;
    const uint32_t i = frame->next++;
    const uint32_t key = value_items(value)[i & ~1u], item = value_items(value)[i];
    if (i % 2 == 0 && !torch_has_tensor(walk->graph, key))
        return 0;
    if (frame->is_filtered &&
        (!torch_has_tensor(walk->graph, item) || is_own_dict(walk, frame, key)))
        return 0;
    walk->role = object_role(frame, key);
    walk_add_key(walk, key);
    walk->item = i;
    walk->pending = item;
    return 0;
}

static int step_parts(struct walk *walk, struct frame *frame)
{
    const char *name;
    const uint32_t id =
        torch_composite_part(walk->graph, graph_at(walk->graph, frame->id), frame->next++, &name);
    if (id == 0)
        return 1;
    frame->whole = frame->id;
    walk_add_name(walk, name);
    walk->pending = id;
    return 0;
}

static int step(struct walk *walk)
{
    struct frame *frame = &walk->frames[walk->n_frames - 1];
    walk->path.n_bytes = frame->n_path;
    walk->n_components = frame->n_components;
    walk->n_to_nul = walk->n_to_nul > frame->n_path ? 0 : walk->n_to_nul;
    walk->item = PLACE_FIXED;
    walk->key = 0;
    walk->role = frame->role;
    walk->is_owned = frame->is_filtered && !frame->is_attributes;
    switch (frame->mode) {
    case WALK_ITEMS:
    case WALK_ARGS:
    case WALK_BOUND_ARGS:
        return step_items(walk, frame);
    case WALK_PAIRS:
        return step_pairs(walk, frame);
    case WALK_PARTS:
        return step_parts(walk, frame);
    case WALK_WRAPPER:
        return object_step_wrapper(walk, frame);
    case WALK_MODULE:
        return object_step_module(walk, frame);
    default:
        return object_step_call(walk, frame);
    }
}

/* Adds findings about what was not listed. */
static int report(struct walk *walk)
{
    struct wfs_catalog *catalog = walk->torch->catalog;
    int code = 0;
    if (walk->is_deep)
        code = catalog_add_finding(catalog, WFS_FINDING_PT_DEPTH,
                                   "values nested deeper than %s are not listed (limit depth)",
                                   wfs_count(walk->torch->limits->depth, "level").text);
    if (code == 0 && walk->is_repetitive)
        code = catalog_add_finding(
            catalog, WFS_FINDING_PT_REPEATS,
            "containers that occur many times are not listed every time (limit repeats)");
    return code < 0 ? wfs_fail_memory(walk->torch->err) : 0;
}

/* Goes into the root: a container is the directory of everything, even without tensors. */
static int enter_root(struct walk *walk, uint32_t root)
{
    const struct value *value = graph_at(walk->graph, root);
    if (value_has_items(value))
        return walk_enter(walk, value->kind == VALUE_DICT ? WALK_PAIRS : WALK_ITEMS, root);
    return visit(walk, root);
}

static int list(struct torch *torch, uint32_t root, const char *prefix)
{
    cleanup(walk_done) struct walk walk = {
        .torch = torch, .graph = torch->graph, .item = PLACE_FIXED};
    walk.n_repeats_left = torch->limits->repeats;
    if (*prefix != '\0')
        walk_add_name(&walk, prefix);
    int code = enter_root(&walk, root);
    while (code >= 0 && walk.n_frames > 0) {
        code = step(&walk);
        if (code == 1)
            walk_leave(&walk);
        if (code == 0)
            code = visit_pending(&walk);
    }
    return code < 0 ? code : report(&walk);
}

int torch_listing_add(struct torch *torch, uint32_t root, const char *prefix)
{
    struct value_lookup lookup = {0};
    int code = torch_marks_set(torch, root);
    torch_marks_modules(torch); /* looks at each dict once */
    if (code < 0)
        return code;
    torch->graph->lookup = &lookup;
    code = list(torch, root, prefix);
    torch->graph->lookup = NULL;
    value_lookup_done(&lookup);
    return code;
}
