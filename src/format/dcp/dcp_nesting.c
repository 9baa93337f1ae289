/* SPDX-License-Identifier: MIT */
/*
 * Paths come from strangers. One is followed only if its parts, joined with dots, are the key, so
 * that names are the same nested or not; if each of its containers is a dict for a text and a list
 * for a number all along; and if lists stay about as long as there are keys.
 */
#include "format/dcp/dcp_nesting.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/torch_args.h"

enum { LIST_SPARE = 1024 };

/* A container or leaf, and where it is. */
struct node {
    uint32_t id;      /* value */
    uint32_t parent;  /* value */
    const char *text; /* key in a dict; NULL: index in a list */
    uint32_t n_text;
    uint32_t index;
};

struct nesting {
    struct dcp_reading *reading;
    struct graph *graph;
    struct node *nodes;
    size_t n_nodes, n_room;
    struct map map;   /* of nodes, by parent and key */
    uint64_t n_empty; /* places of lists that nothing is in */
    uint32_t root, none;
    size_t n_flat;          /* keys whose path was not followed */
    const char *first_flat; /* the first of them */
};

static bool is_node(const void *ctx, uint32_t i)
{
    const struct node *const *pair = ctx;
    const struct node *wanted = pair[0], *node = &pair[1][i];
    if (node->parent != wanted->parent || (node->text == NULL) != (wanted->text == NULL))
        return false;
    return node->text == NULL ? node->index == wanted->index
                              : node->n_text == wanted->n_text &&
                                    memcmp(node->text, wanted->text, node->n_text) == 0;
}

static uint64_t hash_of(const struct node *node)
{
    const uint32_t head[] = {node->parent, node->text == NULL, node->index};
    const uint64_t hash = hash_bytes(head, sizeof(head), hash_seed());
    return node->text == NULL ? hash : hash_bytes(node->text, node->n_text, hash);
}

static const struct node *find(const struct nesting *n, const struct node *wanted)
{
    const struct node *pair[] = {wanted, n->nodes};
    uint32_t i;
    return map_find(&n->map, hash_of(wanted), is_node, pair, &i) ? &n->nodes[i] : NULL;
}

/* Reads a part of a path. False: it is neither a text nor an index of a list. */
static bool read_part(const struct graph *planner, uint32_t id, struct node *ret)
{
    const struct value *value = graph_at(planner, id);
    *ret = (struct node){0};
    if (value->kind == VALUE_TEXT) {
        ret->text = value->text;
        ret->n_text = value->n;
        return true;
    }
    if (value->kind != VALUE_INT || value->integer < 0 || value->integer > INT32_MAX)
        return false;
    ret->index = (uint32_t)value->integer;
    return true;
}

/* Takes a text from the front of what is left of a key. */
static bool take(const char **at, const char *end, const char *text, size_t n)
{
    if (n > (size_t)(end - *at) || memcmp(*at, text, n) != 0)
        return false;
    *at += n;
    return true;
}

/* Returns whether the parts of the path, joined with dots, are the key. */
static bool is_spelled(const struct dcp_reading *r, uint32_t path, const struct dcp_key *key)
{
    const struct graph *planner = &r->metadata->graph;
    const uint32_t n = torch_n_args(planner, path);
    const char *at = key->name, *end = key->name + key->n_name;
    if (n == 0 || n > r->context->limits.depth / 2)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct node part;
        char number[16];
        if (!read_part(planner, torch_arg(planner, path, i), &part) ||
            (i == 0 && part.text == NULL) || (i > 0 && !take(&at, end, ".", 1)))
            return false;
        const int n_number = snprintf(number, sizeof(number), "%u", part.index);
        if (part.text != NULL ? !take(&at, end, part.text, part.n_text)
                              : !take(&at, end, number, (size_t)n_number))
            return false;
    }
    return at == end;
}

/* Returns whether a list of the graph may get an item at this index. */
static bool has_room(const struct nesting *n, uint32_t list, uint32_t index)
{
    const uint32_t n_items = list == 0 ? 0 : graph_at(n->graph, list)->n;
    return index < n_items ||
           n->n_empty + (index - n_items) <= (uint64_t)n->reading->n_keys + LIST_SPARE;
}

/* Returns whether the path can be followed from the root to a place where nothing is. */
static bool is_free(const struct nesting *n, uint32_t path)
{
    const struct graph *planner = &n->reading->metadata->graph;
    const uint32_t n_parts = torch_n_args(planner, path);
    uint32_t at = n->root;
    for (uint32_t i = 0; i < n_parts; i++) {
        struct node part;
        (void)read_part(planner, torch_arg(planner, path, i), &part);
        const unsigned kind = part.text != NULL ? VALUE_DICT : VALUE_LIST;
        if (at != 0 && (graph_at(n->graph, at)->kind != kind))
            return false;
        if (part.text == NULL && !has_room(n, at, part.index))
            return false;
        part.parent = at;
        const struct node *node = at == 0 ? NULL : find(n, &part);
        if (node != NULL && i + 1 == n_parts)
            return false;
        /* A leaf has the mark of containers only when it is one of ours. */
        if (node != NULL && (graph_at(n->graph, node->id)->marks & MARK_TENSOR) == 0)
            return false;
        at = node == NULL ? 0 : node->id;
    }
    return true;
}

static int set_item(struct nesting *n, uint32_t list, uint32_t index, uint32_t id)
{
    while (graph_at(n->graph, list)->n <= index) {
        if (value_append(n->graph, list, &n->none, 1) < 0)
            return -ENOMEM;
        n->n_empty++;
    }
    struct value *value = graph_at(n->graph, list);
    (value->n <= 2 ? value->pair : value->items)[index] = id;
    n->n_empty--;
    return 0;
}

/* Puts a value into a container of ours. */
static int put(struct nesting *n, const struct node *part, uint32_t id)
{
    struct node node = *part;
    node.id = id;
    if (id == 0 || array_reserve(&n->nodes, sizeof(*n->nodes), n->n_nodes, 1, &n->n_room) < 0 ||
        map_add(&n->map, hash_of(&node), (uint32_t)n->n_nodes) < 0)
        return -ENOMEM;
    if (node.text == NULL) {
        n->nodes[n->n_nodes++] = node;
        return set_item(n, node.parent, node.index, id);
    }
    const uint32_t pair[] = {value_new_text(n->graph, node.text, node.n_text), id};
    if (pair[0] == 0)
        return -ENOMEM;
    node.text = graph_at(n->graph, pair[0])->text;
    n->nodes[n->n_nodes++] = node;
    return value_append(n->graph, node.parent, pair, 2);
}

/* Marked as if a tensor were in it, so that what is in it is listed one by one. */
static uint32_t container_new(struct nesting *n, enum value_kind kind)
{
    const uint32_t id = value_new(n->graph, kind);
    if (id != 0)
        graph_at(n->graph, id)->marks |= MARK_TENSOR;
    return id;
}

static int follow(struct nesting *n, uint32_t path, uint32_t leaf)
{
    const struct graph *planner = &n->reading->metadata->graph;
    const uint32_t n_parts = torch_n_args(planner, path);
    uint32_t at = n->root;
    for (uint32_t i = 0; i < n_parts; i++) {
        struct node part, next = {0};
        (void)read_part(planner, torch_arg(planner, path, i), &part);
        part.parent = at;
        const struct node *node = find(n, &part);
        if (node != NULL) {
            at = node->id;
            continue;
        }
        if (i + 1 < n_parts)
            (void)read_part(planner, torch_arg(planner, path, i + 1), &next);
        at =
            i + 1 == n_parts ? leaf : container_new(n, next.text != NULL ? VALUE_DICT : VALUE_LIST);
        if (at == 0 || put(n, &part, at) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Collects the path of each key, by the first file that has one. */
static uint32_t *collect_paths(const struct dcp_reading *r)
{
    struct graph *planner = &r->metadata->graph;
    uint32_t *paths = calloc(r->n_keys + 1, sizeof(*paths));
    for (size_t i = 0; paths != NULL && i < r->metadata->n_roots; i++) {
        const uint32_t id = dcp_field(planner, r->metadata->roots[i], "planner_data");
        const struct value *dict = id == 0 ? NULL : graph_at(planner, id);
        for (uint32_t k = 0; dict != NULL && dict->kind == VALUE_DICT && k + 1 < dict->n; k += 2) {
            const struct value *text = graph_at(planner, value_items(dict)[k]);
            const uint32_t key = text->kind == VALUE_TEXT
                                     ? text_index_find(&r->names, text->text, text->n)
                                     : TEXT_INDEX_NONE;
            if (key != TEXT_INDEX_NONE && paths[key] == 0)
                paths[key] = value_items(dict)[k + 1];
        }
    }
    return paths;
}

static int start(struct nesting *n)
{
    n->root = container_new(n, VALUE_DICT);
    n->none = value_new(n->graph, VALUE_NONE);
    return n->root == 0 || n->none == 0 ? -ENOMEM : 0;
}

/* Puts a key at the top. 1: done; 0: something else has that name. */
static int put_flat(struct nesting *n, const struct dcp_key *key, uint32_t leaf)
{
    const struct node part = {
        .parent = n->root, .text = key->name, .n_text = (uint32_t)key->n_name};
    if (find(n, &part) != NULL)
        return 0;
    return put(n, &part, leaf) < 0 ? -ENOMEM : 1;
}

/* Puts every key into its place. 1: done; 0: keys contradict each other. */
static int put_all(struct nesting *n, const uint32_t *paths, const uint32_t *leaves)
{
    const struct dcp_reading *r = n->reading;
    for (size_t i = 0; i < r->n_keys; i++) {
        const struct dcp_key *key = &r->keys[i];
        int code = 0;
        if (leaves[i] == 0)
            continue;
        const bool is_nested =
            paths != NULL && paths[i] != 0 && is_spelled(r, paths[i], key) && is_free(n, paths[i]);
        if (paths != NULL && paths[i] != 0 && !is_nested && n->n_flat++ == 0)
            n->first_flat = key->name;
        code = is_nested ? follow(n, paths[i], leaves[i]) : put_flat(n, key, leaves[i]);
        if (code < 0 || (code == 0 && !is_nested))
            return code;
    }
    return 1;
}

static void nesting_done(struct nesting *n)
{
    const int saved = errno;
    free(n->nodes);
    map_done(&n->map);
    errno = saved;
}

static int tell(const struct nesting *n, bool is_flat)
{
    if (n->n_flat == 0)
        return 0;
    if (is_flat)
        return catalog_add_finding(n->reading->catalog, WFS_FINDING_DCP_NESTING,
                                   "planner_data contradicts the keys, first about '%s': all keys "
                                   "are at the top",
                                   wfs_quote(n->first_flat).text);
    return catalog_add_finding(n->reading->catalog, WFS_FINDING_DCP_NESTING,
                               "%zu %s not where planner_data has %s, which contradicts the keys: "
                               "'%s'",
                               n->n_flat, n->n_flat == 1 ? "key is" : "keys are",
                               n->n_flat == 1 ? "it" : "them", wfs_quote(n->first_flat).text);
}

int dcp_nesting_make(struct dcp_reading *reading, const uint32_t *leaves, uint32_t *ret_root)
{
    cleanup(nesting_done) struct nesting n = {.reading = reading,
                                              .graph = &reading->catalog->graph};
    cleanup(nesting_done) struct nesting flat = n;
    autofree uint32_t *paths = collect_paths(reading);
    if (paths == NULL || start(&n) < 0)
        return wfs_fail_memory(reading->err);
    int code = put_all(&n, paths, leaves);
    const bool is_flat = code == 0;
    *ret_root = n.root;
    if (is_flat && start(&flat) == 0) {
        code = put_all(&flat, NULL, leaves);
        *ret_root = flat.root;
    }
    return code <= 0 || tell(&n, is_flat) < 0 ? wfs_fail_memory(reading->err) : 0;
}
