/* SPDX-License-Identifier: MIT */
/*
 * Dicts are taken apart, whatever their class; a list only if a dict or tensor is in it, or in
 * lists in it; all else is a leaf, and so is what was one item of the distributed checkpoint that
 * it comes from, as of one that was not flattened. Keys of dicts become text. An empty dict
 * vanishes: a leaf for it would make PyTorch take the checkpoint for one of version 2.3, which
 * flattened in another way.
 */
#include "format/dcp/writer/dcp_plan.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "format/core/layout.h"
#include "format/pytorch/object/torch_builder.h"
#include "format/pytorch/object/torch_marks.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/writer/torch_edit.h"
#include "value/value_leaf.h"

/* What is known of a list: whether it is taken apart. */
enum openness { UNKNOWN, CLOSED, OPEN };

struct walk {
    const struct torch_plan *plan;
    const struct graph *graph;
    struct dcp_leaves *leaves;
    struct wfs_error *err;
    struct strbuf key;
    struct dcp_step *path; /* malloc'ed: n_most parts */
    uint32_t n_path, n_most;
    uint64_t n_leaves_most;
    uint8_t *lists;           /* malloc'ed: by value, enum openness */
    struct text_index edited; /* names of values that were edited */
    const char *inside;       /* the outermost of them on the path; NULL: none */
};

void dcp_leaves_done(struct dcp_leaves *leaves)
{
    const int saved = errno;
    free(leaves->leaves);
    free(leaves->empty);
    text_index_done(&leaves->names);
    errno = saved;
}

static struct wfs_quoted quote_key(const struct walk *walk)
{
    return wfs_quote_n(walk->key.n_bytes == 0 ? "" : walk->key.bytes, walk->key.n_bytes);
}

/* ---- what a value is ---- */

/* Returns the dict that a value is, or has its items in; 0: it is not a dict. *ret_is_empty: it is
 * an empty one, which may have no value. */
static uint32_t dict_of(const struct graph *graph, uint32_t id, bool *ret_is_empty)
{
    const struct value *value = graph_at(graph, id);
    const enum torch_what what = torch_what_of(graph, value);
    uint32_t dict = 0;
    *ret_is_empty = false;
    if (value->kind == VALUE_DICT) {
        dict = id;
    } else if (what == WHAT_ORDERED_DICT || what == WHAT_DICT || what == WHAT_COUNTER ||
               what == WHAT_DEFAULT_DICT) {
        if (torch_container_content(graph, value) != 0)
            return 0;
        dict = value_part(graph, value, PART_ITEMS);
        *ret_is_empty = dict == 0;
    }
    *ret_is_empty = *ret_is_empty || (dict != 0 && graph_at(graph, dict)->n == 0);
    return *ret_is_empty ? 0 : dict;
}

static bool is_dict(const struct graph *graph, uint32_t id)
{
    bool is_empty;
    return dict_of(graph, id, &is_empty) != 0 || is_empty;
}

/* Returns the tensor of the catalog that a value is; NULL: it is none, or PyTorch has another class
 * for it (a storage, an array of NumPy). */
static const struct wfs_tensor *tensor_of(const struct walk *walk, uint32_t id)
{
    const struct value *value = graph_at(walk->graph, id);
    const uint32_t number = id < walk->plan->n_tensors ? walk->plan->tensors[id] : 0;
    const enum torch_what what = torch_what_of(walk->graph, value);
    if (number == 0 || value->kind != VALUE_CALL || what == WHAT_NP_RECONSTRUCT ||
        what == WHAT_NP_FROMBUFFER || what == WHAT_LOAD_FROM_BYTES ||
        torch_plan_storage(walk->plan, id) != NULL)
        return NULL;
    return wfs_catalog_tensor(walk->plan->catalog, number - 1);
}

/* Returns whether PyTorch takes a list apart. Lists in it are bounded by the parts of a path. */
static bool is_open(struct walk *walk, uint32_t id, uint32_t depth)
{
    const struct value *value = graph_at(walk->graph, id);
    bool is = false;
    if (walk->lists[id] != UNKNOWN || depth == 0)
        return walk->lists[id] == OPEN;
    walk->lists[id] = CLOSED;
    for (uint32_t i = 0; i < value->n && !is; i++) {
        const uint32_t item = value_items(value)[i];
        is = graph_at(walk->graph, item)->kind == VALUE_LIST
                 ? is_open(walk, item, depth - 1)
                 : is_dict(walk->graph, item) || tensor_of(walk, item) != NULL ||
                       torch_is_composed(walk->graph, graph_at(walk->graph, item));
    }
    walk->lists[id] = is ? OPEN : CLOSED;
    return is;
}

/* ---- leaves ---- */

static int fail_many(const struct walk *walk)
{
    return wfs_fail(
        walk->err, E2BIG, "it has more than %s",
        wfs_count_as(walk->n_leaves_most, "tensor or value", "tensors and values").text);
}

static int add_leaf(struct walk *walk, const struct wfs_tensor *tensor, uint32_t id)
{
    struct dcp_leaves *leaves = walk->leaves;
    struct arena *arena = &walk->plan->layout->arena;
    uint32_t number;
    if (leaves->n + leaves->n_empty >= walk->n_leaves_most)
        return fail_many(walk);
    struct dcp_step *path = arena_calloc(arena, walk->n_path, sizeof(*path));
    const char *key =
        arena_copy(arena, walk->key.n_bytes == 0 ? "" : walk->key.bytes, walk->key.n_bytes);
    if (path == NULL || key == NULL || walk->key.has_failed ||
        array_reserve(&leaves->leaves, sizeof(*leaves->leaves), leaves->n, 1, &leaves->n_room) <
            0 ||
        text_index_add(&leaves->names, key, walk->key.n_bytes, &number) < 0)
        return wfs_fail_memory(walk->err);
    if (number != leaves->n)
        return wfs_fail(walk->err, EINVAL,
                        "two things would have the key '%s' in a distributed checkpoint, which "
                        "joins names with dots: rename one of them",
                        quote_key(walk).text);
    memcpy(path, walk->path, walk->n_path * sizeof(*path));
    leaves->leaves[leaves->n++] = (struct dcp_leaf){.key = key,
                                                    .n_key = walk->key.n_bytes,
                                                    .path = path,
                                                    .n_path = walk->n_path,
                                                    .tensor = tensor,
                                                    .id = id,
                                                    .is_edited = walk->inside != NULL};
    return 0;
}

/* Notes an empty dict that is left out; one that somebody wrote must not be. */
static int add_empty(struct walk *walk)
{
    struct dcp_leaves *leaves = walk->leaves;
    if (walk->inside != NULL)
        return wfs_fail(walk->err, EINVAL,
                        "value '%s' was edited, and has an empty dict, which a distributed "
                        "checkpoint cannot store: remove it",
                        wfs_quote(walk->inside).text);
    if (array_reserve(&leaves->empty, sizeof(*leaves->empty), leaves->n_empty, 1,
                      &leaves->n_empty_room) < 0)
        return wfs_fail_memory(walk->err);
    if (leaves->n + leaves->n_empty >= walk->n_leaves_most)
        return fail_many(walk);
    const char *name = arena_copy(&walk->plan->layout->arena, walk->key.bytes, walk->key.n_bytes);
    if (name == NULL)
        return wfs_fail_memory(walk->err);
    leaves->empty[leaves->n_empty++] = name;
    return 0;
}

static int fail_tensor(const struct walk *walk, const char *what)
{
    return wfs_fail(walk->err, EOPNOTSUPP,
                    "tensor '%s' is %s, which a distributed checkpoint cannot hold: exclude it",
                    quote_key(walk).text, what);
}

static int walk_value(struct walk *walk, uint32_t id);

/* Walks what the path and the key lead to, to which the caller has added a part; removes it. */
static int walk_part(struct walk *walk, struct dcp_step step, size_t n_key, uint32_t id)
{
    if (walk->n_path == walk->n_most)
        return wfs_fail(walk->err, E2BIG,
                        "'%s' is nested deeper than %s, the most that is written to a "
                        "distributed checkpoint",
                        quote_key(walk).text, wfs_count(walk->n_most, "level").text);
    const char *outside = walk->inside;
    const uint32_t edited =
        outside != NULL || walk->key.n_bytes == 0
            ? TEXT_INDEX_NONE
            : text_index_find(&walk->edited, walk->key.bytes, walk->key.n_bytes);
    if (edited != TEXT_INDEX_NONE)
        walk->inside = walk->edited.texts[edited].bytes;
    walk->path[walk->n_path++] = step;
    const int code = walk->key.has_failed ? wfs_fail_memory(walk->err) : walk_value(walk, id);
    walk->n_path--;
    walk->inside = outside;
    walk->key.n_bytes = n_key;
    return code;
}

/* Spells a key of a dict as Python's str(), behind the key so far. */
static int add_key(struct walk *walk, uint32_t id, struct dcp_step *ret)
{
    const struct value *value = graph_at(walk->graph, id);
    const size_t n_before = walk->key.n_bytes;
    if (value->kind == VALUE_TEXT && !value_is_latin1(value) && !value_is_unicode(value))
        return wfs_fail(walk->err, EINVAL,
                        "the key '%s' is not valid UTF-8, which a distributed checkpoint requires",
                        wfs_quote_n(value->text, value->n).text);
    if (value->kind == VALUE_TEXT && value_is_latin1(value))
        value_add_latin1(&walk->key, value);
    else if (!value_add_key(&walk->key, walk->graph, id))
        return wfs_fail(walk->err, EOPNOTSUPP,
                        "'%s' has a key that is neither a text nor a number, which a distributed "
                        "checkpoint cannot hold",
                        quote_key(walk).text);
    const size_t n = walk->key.n_bytes - n_before;
    ret->n_text = (uint32_t)n;
    ret->text = arena_copy(&walk->plan->layout->arena,
                           walk->key.bytes == NULL ? "" : walk->key.bytes + n_before, n);
    return ret->text == NULL || n > UINT32_MAX ? wfs_fail_memory(walk->err) : 0;
}

static void add_dot(struct walk *walk)
{
    if (walk->n_path > 0)
        strbuf_puts(&walk->key, ".");
}

static int walk_dict(struct walk *walk, const struct value *dict)
{
    int code = 0;
    for (uint32_t i = 0; i + 1 < dict->n && code == 0; i += 2) {
        const size_t n_key = walk->key.n_bytes;
        struct dcp_step step = {0};
        if (walk->n_path == 0 &&
            dcp_companion_has(walk->plan->catalog, value_items(dict)[i], value_items(dict)[i + 1]))
            continue;
        add_dot(walk);
        code = add_key(walk, value_items(dict)[i], &step);
        if (code == 0)
            code = walk_part(walk, step, n_key, value_items(dict)[i + 1]);
    }
    return code;
}

static int walk_list(struct walk *walk, const struct value *list)
{
    int code = 0;
    for (uint32_t i = 0; i < list->n && code == 0; i++) {
        const size_t n_key = walk->key.n_bytes;
        add_dot(walk);
        strbuf_printf(&walk->key, "%u", i);
        code = walk_part(walk, (struct dcp_step){.index = i}, n_key, value_items(list)[i]);
    }
    return code;
}

static int walk_value(struct walk *walk, uint32_t id)
{
    const struct value *value = graph_at(walk->graph, id);
    const struct wfs_tensor *tensor = tensor_of(walk, id);
    bool is_empty;
    const uint32_t dict = dict_of(walk->graph, id, &is_empty);
    if ((value->marks & MARK_WHOLE) != 0)
        return add_leaf(walk, NULL, id);
    if (is_empty)
        return add_empty(walk);
    if (dict != 0)
        return walk_dict(walk, graph_at(walk->graph, dict));
    if (value->kind == VALUE_LIST && is_open(walk, id, walk->n_most))
        return walk_list(walk, value);
    if (torch_is_composed(walk->graph, value))
        return fail_tensor(walk, "sparse, nested or made of several tensors");
    if (tensor != NULL && torch_edit_maker(walk->plan, id) == WHAT_REBUILD_QTENSOR)
        return fail_tensor(walk, "quantized");
    const int code =
        tensor == NULL ? 0 : storable_check_tensor(walk->plan->layout->format, tensor, walk->err);
    return code < 0 ? code : add_leaf(walk, tensor, id);
}

static void walk_done(struct walk *walk)
{
    strbuf_done(&walk->key);
    text_index_done(&walk->edited);
    free(walk->lists);
    free(walk->path);
}

int dcp_leaves_find(const struct torch_plan *plan, struct dcp_leaves *leaves)
{
    const struct graph *graph = &plan->graph;
    struct limits limits;
    limits_init(&limits);
    /* As deep as the reader follows a path. */
    cleanup(walk_done) struct walk walk = {.plan = plan,
                                           .graph = graph,
                                           .leaves = leaves,
                                           .err = plan->err,
                                           .n_most = (uint32_t)limits.depth / 2,
                                           .n_leaves_most = limits.tensors};
    uint32_t number;
    bool is_empty;
    walk.lists = calloc((size_t)graph->n_values + 1, 1);
    walk.path = calloc(walk.n_most, sizeof(*walk.path));
    int code = walk.lists == NULL || walk.path == NULL ? -ENOMEM : 0;
    for (size_t i = 0; i < plan->catalog->values.n && code == 0; i++) {
        const struct catalog_value *value = &plan->catalog->values.list[i];
        if (value->is_edited)
            code = text_index_add(&walk.edited, value->name, strlen(value->name), &number);
    }
    if (code < 0)
        return wfs_fail_memory(plan->err);
    if (!is_dict(graph, plan->root))
        return wfs_fail(plan->err, EOPNOTSUPP,
                        "a distributed checkpoint is a dict, and this checkpoint is not one: %s",
                        wfs_catalog_n_tensors(plan->catalog) > 0
                            ? "convert it to .safetensors first, for its tensors alone"
                            : "it has no tensors, so there is nothing to convert");
    leaves->dict = dict_of(graph, plan->root, &is_empty);
    return leaves->dict == 0 ? 0 : walk_dict(&walk, graph_at(graph, leaves->dict));
}
