/* SPDX-License-Identifier: MIT */
/*
 * The walk over the graph of a record. It is a tree no deeper than the record may be, which bounds
 * the recursion.
 */
#include <weightfs/strbuf.h>
#include "format/core/keys.h"
#include "format/records/record_load.h"
#include "format/records/record_map.h"
#include "format/records/record_names.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct walk {
    struct record_load *load;
    struct strbuf path;
    struct names names;
    size_t n_components;
    uint32_t parent;  /* the place of the container around what is visited; 0: none */
    uint32_t item;    /* its position in that */
    size_t start;     /* of its own component in the path */
    uint64_t n_names; /* bytes of all keys so far */
};

/* Marks what has a tensor in it. */
static bool mark(const struct graph *graph, uint32_t id)
{
    struct value *value = graph_at(graph, id);
    const bool is_tensor = record_is_tensor(graph, id);
    const uint32_t n = value_has_items(value) && !is_tensor ? value->n : 0;
    bool has_tensor = is_tensor;
    for (uint32_t i = 0; i < n; i++)
        has_tensor = mark(graph, value_items(value)[i]) || has_tensor;
    value->marks |= has_tensor ? MARK_TENSOR : 0;
    return has_tensor;
}

static void add_component(struct walk *walk, const char *name, size_t n_bytes)
{
    if (walk->n_components++ > 0)
        strbuf_add(&walk->path, ".", 1);
    walk->start = walk->path.n_bytes;
    strbuf_add(&walk->path, name, n_bytes);
}

static void add_key(struct walk *walk, const struct value *key)
{
    add_component(walk, RECORD_RAW, record_is_keyword(key->text, key->n) ? strlen(RECORD_RAW) : 0);
    strbuf_add(&walk->path, key->text, key->n);
}

static void add_number(struct walk *walk, uint32_t number)
{
    add_component(walk, "", 0);
    strbuf_printf(&walk->path, "%u", number);
}

static int make_name(struct walk *walk, const char **ret)
{
    struct record_load *load = walk->load;
    const struct limits *limits = &load->context->limits;
    if (walk->n_components == 0)
        add_component(walk, RECORD_ITEM, strlen(RECORD_ITEM));
    if (walk->path.is_cut)
        return wfs_fail_memory(load->err);
    if (walk->path.n_bytes > limits->key)
        return wfs_fail(load->err, E2BIG, "the key '%s' is longer than %s (limit key)",
                        wfs_quote_n(walk->path.bytes, walk->path.n_bytes).text,
                        wfs_count(limits->key, "byte").text);
    walk->n_names += walk->path.n_bytes + 1;
    if (walk->n_names > limits->names)
        return wfs_fail(load->err, E2BIG, "all keys take more than %s (limit names)",
                        wfs_count(limits->names, "byte").text);
    return names_make(&walk->names, &load->catalog->arena, walk->path.bytes, walk->path.n_bytes,
                      NULL, ret) < 0
               ? record_fail_memory(load)
               : 0;
}

static uint32_t add_place(struct walk *walk, uint32_t id, const char *name, enum place_kind kind)
{
    const struct catalog_place place = {
        .name = name,
        .n_name = (uint32_t)(name != NULL ? strlen(name) : walk->path.n_bytes),
        .start = walk->n_components == 0 || walk->parent == 0 ? PLACE_FIXED : (uint32_t)walk->start,
        .parent = walk->parent,
        .item = walk->parent == 0 ? PLACE_FIXED : walk->item,
        .id = id,
        .kind = (uint8_t)kind};
    return catalog_add_place(walk->load->catalog, &place);
}

static int check_count(const struct walk *walk, size_t n, const char *what)
{
    const uint64_t limit = walk->load->context->limits.tensors;
    return n < limit ? 0
                     : wfs_fail(walk->load->err, E2BIG,
                                "it has more than %" PRIu64 " %s (limit tensors)", limit, what);
}

static int add_tensor(struct walk *walk, uint32_t id)
{
    const char *key;
    int code = check_count(walk, walk->load->catalog->n_tensors, "tensors");
    if (code == 0)
        code = make_name(walk, &key);
    if (code < 0)
        return code;
    const uint32_t place = add_place(walk, id, key, PLACE_TENSOR);
    return place == 0 ? wfs_fail_memory(walk->load->err)
                      : record_tensor_add(walk->load, id, place, key);
}

static int add_value(struct walk *walk, uint32_t id)
{
    const char *name;
    int code = check_count(walk, walk->load->catalog->values.n, "values");
    if (code == 0)
        code = make_name(walk, &name);
    if (code == 0)
        code = record_settle(walk->load, id);
    if (code < 0)
        return code;
    const uint32_t place = add_place(walk, id, name, PLACE_VALUE);
    return place == 0 || catalog_add_value(walk->load->catalog, name, id, place) < 0
               ? wfs_fail_memory(walk->load->err)
               : 0;
}

static int visit(struct walk *walk, uint32_t id);

static int enter(struct walk *walk, uint32_t id)
{
    const struct graph *graph = walk->load->graph;
    const struct value *value = graph_at(graph, id);
    const struct walk before = *walk;
    const uint32_t place = add_place(walk, id, NULL, PLACE_HOLDER);
    const bool is_map = value->kind == VALUE_DICT;
    int code = place == 0 ? wfs_fail_memory(walk->load->err) : 0;
    for (uint32_t i = is_map ? 1 : 0; i < value->n && code == 0; i += is_map ? 2 : 1) {
        walk->parent = place;
        walk->item = i;
        if (is_map)
            add_key(walk, graph_at(graph, value_items(value)[i - 1]));
        else
            add_number(walk, i);
        code = visit(walk, value_items(value)[i]);
        walk->path.n_bytes = before.path.n_bytes;
        walk->n_components = before.n_components;
    }
    walk->parent = before.parent;
    walk->item = before.item;
    walk->start = before.start;
    return code;
}

static int visit(struct walk *walk, uint32_t id)
{
    const struct value *value = graph_at(walk->load->graph, id);
    if (record_is_tensor(walk->load->graph, id))
        return add_tensor(walk, id);
    return (value->marks & MARK_TENSOR) != 0 ? enter(walk, id) : add_value(walk, id);
}

/* The root is the directory of everything, even without tensors. */
static int visit_root(struct walk *walk)
{
    const uint32_t id = walk->load->item;
    if (record_is_tensor(walk->load->graph, id))
        return add_tensor(walk, id);
    const int code = graph_at(walk->load->graph, id)->kind == VALUE_PERSISTENT
                         ? record_settle(walk->load, id)
                         : 0;
    if (code < 0)
        return code;
    const struct value *value = graph_at(walk->load->graph, id);
    return value_has_items(value) && value->n > 0 ? enter(walk, id) : add_value(walk, id);
}

int record_listing_add(struct record_load *load)
{
    struct walk walk = {.load = load};
    mark(load->graph, load->item);
    int code = visit_root(&walk);
    const uint64_t n_clashes = walk.names.n_clashes;
    strbuf_done(&walk.path);
    names_done(&walk.names);
    if (code == 0 && n_clashes > 0)
        tally_note(&load->tally, &load->catalog->arena, WFS_LOW, REC_KEY,
                   "%s spelled like another one, with ~2, ~3 ... appended",
                   wfs_count_as(n_clashes, "key is", "keys are").text);
    return code;
}
