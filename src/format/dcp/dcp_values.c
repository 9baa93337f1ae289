/* SPDX-License-Identifier: MIT */
/*
 * The values of a checkpoint, and the one tree of names that they are in with the tensors.
 *
 * planner_data gives each key its path in the nested dicts and lists that were saved. Paths come
 * from strangers: one is followed only if its parts, joined with dots, are the key, so that names
 * are the same nested or not; if each of its containers is a dict for a text and a list for a
 * number all along; and if lists stay about as long as there are keys. Any other key stays at the
 * top under its own name.
 *
 * The value of a key is the pickle of a torch.save file. Its storages, if it has tensors in it, are
 * in that file: what a storage belongs to is known by the number of the value that names it. In
 * the graph, a tensor of the checkpoint is a persistent value with its number.
 */
#include "format/dcp/dcp_reading.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/python_json.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_storage.h"
#include "format/pytorch/object/torch_dangers.h"
#include "format/pytorch/object/torch_listing.h"
#include "format/pytorch/object/torch_tensor.h"
#include "format/pytorch/torch_containers.h"

/* ---- nesting ---- */

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

/* Puts every key into its place. 1: done; 0: keys contradict each other. */
static int put_all(struct nesting *n, const uint32_t *paths, const uint32_t *leaves)
{
    const struct dcp_reading *r = n->reading;
    for (size_t i = 0; i < r->n_keys; i++) {
        const struct dcp_key *key = &r->keys[i];
        const struct node flat = {
            .parent = n->root, .text = key->name, .n_text = (uint32_t)key->n_name};
        if (leaves[i] == 0)
            continue;
        const bool is_nested =
            paths != NULL && paths[i] != 0 && is_spelled(r, paths[i], key) && is_free(n, paths[i]);
        if (paths != NULL && paths[i] != 0 && !is_nested && n->n_flat++ == 0)
            n->first_flat = key->name;
        if (!is_nested && find(n, &flat) != NULL)
            return 0;
        if ((is_nested ? follow(n, paths[i], leaves[i]) : put(n, &flat, leaves[i])) < 0)
            return -ENOMEM;
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

/* Makes the root in the graph of the catalog: leaves[i] is the value of key i; 0: it is left out.
 */
static int nest(struct dcp_reading *reading, const uint32_t *leaves, uint32_t *ret_root)
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

/* ---- the listing ---- */

/* A value with storages in its file. */
struct holder {
    uint32_t last; /* the last value of its pickle */
    struct source *source;
    struct zip zip;
    struct torch_records records;
    bool is_big_endian;
};

struct listing {
    struct torch torch;
    struct dcp_reading *reading;
    const struct dcp_tables *tables; /* of the assembly */
    struct source *assembly;
    struct holder **holders; /* malloc'ed each, in the order of their values */
    size_t n_holders, n_holder_room;
    uint32_t first_tensor; /* values from this one on are the tensors of the tables */
    size_t n_bad;          /* values that cannot be read */
};

static void holder_free(struct holder *holder)
{
    if (holder != NULL)
        zip_close(&holder->zip);
    free(holder);
}

static void listing_done(struct listing *l)
{
    const int saved = errno;
    for (size_t i = 0; i < l->n_holders; i++)
        holder_free(l->holders[i]);
    free(l->holders);
    torch_cache_done(&l->torch);
    names_done(&l->torch.names);
    names_done(&l->torch.value_names);
    free(l->torch.scratch);
    errno = saved;
}

/* ---- storages of values ---- */

static int find_storage(struct torch *torch, const struct torch_storage_id *id,
                        struct torch_storage *ret)
{
    const struct listing *l = (const struct listing *)torch->container;
    size_t low = 0, high = l->n_holders;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (l->holders[middle]->last < id->value)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == l->n_holders) {
        ret->trouble = "it has no file";
        return 0;
    }
    const struct holder *holder = l->holders[low];
    torch->container = &holder->records;
    torch->source = holder->source;
    torch->is_big_endian = holder->is_big_endian;
    const int code = torch_records_find_storage(torch, id, ret);
    torch->container = l;
    torch->is_big_endian = false;
    return code;
}

/* ---- tensors of the checkpoint ---- */

static bool number_of(const struct torch *torch, uint32_t id, int64_t *ret)
{
    const struct listing *l = (const struct listing *)torch->container;
    const struct value *value = graph_at(torch->graph, id);
    return id >= l->first_tensor && value->kind == VALUE_PERSISTENT &&
           torch_integer(torch->graph, value->id, ret) && *ret >= 0 && *ret < l->tables->n_tensors;
}

static bool is_tensor(const struct torch *torch, uint32_t id)
{
    int64_t number;
    return number_of(torch, id, &number);
}

static int find_tensor(struct torch *torch, uint32_t id, struct torch_tensor *ret)
{
    const struct listing *l = (const struct listing *)torch->container;
    int64_t number;
    if (!number_of(torch, id, &number))
        return 0;
    const struct dcp_tensor *tensor = &l->tables->tensors[number];
    if (torch_tensor_reserve(torch, ret, tensor->rank) < 0)
        return -ENOMEM;
    ret->dtype = (enum wfs_dtype)tensor->dtype;
    ret->rank = tensor->rank;
    ret->strides = NULL;
    if (tensor->rank > 0)
        memcpy(ret->dims, tensor->dims, tensor->rank * sizeof(*ret->dims));
    ret->storage = (struct torch_storage){.source = l->assembly,
                                          .offset = tensor->start,
                                          .n_bytes = tensor->n_bytes,
                                          .dtype = (enum wfs_dtype)tensor->dtype};
    /* Elements that are known to lie in one file as they are shown. */
    if (tensor->n_parts == 1 && tensor->parts[0].data != 0 && !tensor->parts[0].is_odd) {
        ret->storage.source = l->tables->files[l->tables->items[tensor->parts[0].item].file].source;
        ret->storage.offset = tensor->parts[0].data - 1;
    }
    torch_tensor_spoil(ret, tensor->trouble);
    torch_tensor_spoil(ret, tensor->late_trouble);
    return 1;
}

/* ---- reading values ---- */

static bool has_storages(const struct graph *graph, uint32_t first)
{
    for (uint32_t id = first; id <= graph->n_values; id++) {
        if (torch_is_storage(graph, id))
            return true;
    }
    return false;
}

static int tell_bad(struct listing *l, const struct dcp_key *key, const char *why)
{
    enum { MAX_TOLD = 20 };
    if (l->n_bad++ >= MAX_TOLD)
        return 0;
    return catalog_add_finding(l->reading->catalog, WFS_FINDING_DCP_VALUE,
                               "the value '%s' cannot be read: %s", wfs_quote(key->name).text,
                               why) < 0
               ? wfs_fail_memory(l->reading->err)
               : 0;
}

/* Reads the value of a key into the graph: *ret_root is 0 where it cannot be read. */
static int read_value(struct listing *l, const struct dcp_key *key, uint32_t *ret_root)
{
    const struct dcp_item *item = key->trouble != NULL ? NULL : &l->tables->items[key->number];
    const uint32_t first = l->torch.graph->n_values + 1;
    struct wfs_error err = {0};
    *ret_root = 0;
    if (item == NULL)
        return tell_bad(l, key, key->trouble);
    struct holder *holder = calloc(1, sizeof(*holder));
    if (holder == NULL || array_reserve(&l->holders, sizeof(struct holder *), l->n_holders, 1,
                                        &l->n_holder_room) < 0) {
        free(holder);
        return wfs_fail_memory(l->reading->err);
    }
    holder->source = l->tables->files[item->file].source;
    l->torch.source = holder->source;
    l->torch.err = &err;
    int code = torch_zip_read(&l->torch, item->offset, item->n_bytes, &holder->zip,
                              &holder->records, ret_root);
    l->torch.err = l->reading->err;
    holder->is_big_endian = l->torch.is_big_endian;
    l->torch.is_big_endian = false;
    holder->last = l->torch.graph->n_values;
    if (code == 0 && has_storages(l->torch.graph, first))
        l->holders[l->n_holders++] = holder;
    else
        holder_free(holder);
    if (code == 0)
        return 0;
    *ret_root = 0;
    if (code == -ENOMEM)
        return wfs_fail_memory(l->reading->err);
    if (!torch_is_trouble(code) || (code == -E2BIG && l->torch.budget.n_opcodes == 0))
        return wfs_fail(l->reading->err, -code, "the value '%s': %s", wfs_quote(key->name).text,
                        err.text);
    autostrbuf struct strbuf why = {0};
    strbuf_printf(&why, "its %s at byte %llu of '%s': %s", wfs_count(item->n_bytes, "byte").text,
                  (unsigned long long)item->offset,
                  wfs_quote(l->tables->files[item->file].name).text, err.text);
    return tell_bad(l, key, why.bytes != NULL ? why.bytes : err.text);
}

static int read_values(struct listing *l, uint32_t *leaves)
{
    const struct dcp_reading *r = l->reading;
    int code = 0;
    for (size_t i = 0; i < r->n_keys && code == 0; i++) {
        if (!r->keys[i].is_tensor)
            code = read_value(l, &r->keys[i], &leaves[i]);
    }
    return code;
}

static int add_tensors(struct listing *l, uint32_t *leaves)
{
    const struct dcp_reading *r = l->reading;
    struct graph *graph = l->torch.graph;
    l->first_tensor = graph->n_values + 1;
    for (size_t i = 0; i < r->n_keys; i++) {
        if (!r->keys[i].is_tensor)
            continue;
        const uint32_t number = value_new_integer(graph, r->keys[i].number);
        leaves[i] = number == 0 ? 0 : value_new(graph, VALUE_PERSISTENT);
        if (leaves[i] == 0)
            return wfs_fail_memory(r->err);
        graph_at(graph, leaves[i])->id = number;
    }
    return 0;
}

static int tell_troubles(struct listing *l)
{
    const struct wfs_catalog *catalog = l->reading->catalog;
    const struct wfs_tensor *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        if (catalog->tensors[i].trouble == NULL)
            continue;
        n++;
        first = first == NULL ? &catalog->tensors[i] : first;
    }
    if (n == 0)
        return 0;
    return catalog_add_finding(l->reading->catalog, WFS_FINDING_DCP_UNREADABLE,
                               "%zu of %s cannot be read; the first is '%s': %s", n,
                               wfs_count(catalog->n_tensors, "tensor").text,
                               wfs_quote(first->key).text, first->trouble);
}

/* Names that are spelled alike get ~2 behind them. */
static int tell_clashes(struct listing *l)
{
    const uint64_t n = l->torch.names.n_clashes + l->torch.value_names.n_clashes;
    return n == 0 ? 0
                  : catalog_add_finding(l->reading->catalog, WFS_FINDING_PT_KEY_CLASH,
                                        "%s spelled like another one, with ~2, ~3 ... appended",
                                        wfs_count_as(n, "key is", "keys are").text);
}

int dcp_values_list(struct dcp_reading *r, struct source *assembly)
{
    struct wfs_catalog *catalog = r->catalog;
    cleanup(listing_done) struct listing l = {
        .reading = r, .assembly = assembly, .tables = dcp_assembly_tables(assembly)};
    cleanup(torch_dangers_done) struct torch_dangers dangers = {0};
    autofree uint32_t *leaves = calloc(r->n_keys + 1, sizeof(*leaves));
    catalog->graph = (struct graph){.notation = &python_notation, .arena = &catalog->arena};
    l.torch = (struct torch){.catalog = catalog,
                             .graph = &catalog->graph,
                             .limits = &r->context->limits,
                             .err = r->err,
                             .source = catalog->sources[0],
                             .dangers = &dangers,
                             .budget = pickle_budget_of(&r->context->limits),
                             .is_forced = r->context->force};
    if (leaves == NULL)
        return wfs_fail_memory(r->err);
    int code = read_values(&l, leaves);
    if (code == 0)
        code = add_tensors(&l, leaves);
    if (code == 0)
        code = nest(r, leaves, &catalog->root);
    if (code < 0)
        return code;
    l.torch.find = find_storage;
    l.torch.is_tensor = is_tensor;
    l.torch.find_tensor = find_tensor;
    l.torch.container = &l;
    catalog->pickle = (struct value_bytes){0};
    if ((code = torch_listing_add(&l.torch, catalog->root, "")) < 0 ||
        (code = torch_storage_list(&l.torch)) < 0)
        return code;
    catalog->pickle = (struct value_bytes){0};
    return l.torch.has_failed || torch_dangers_report(&l.torch) < 0 || tell_troubles(&l) < 0 ||
                   tell_clashes(&l) < 0
               ? wfs_fail_memory(r->err)
               : 0;
}
