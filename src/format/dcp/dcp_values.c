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

#include "format/dcp/writer/dcp_plan.h"
#include "format/pytorch/object/python_json.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_storage.h"
#include "format/pytorch/object/torch_dangers.h"
#include "format/pytorch/object/torch_listing.h"
#include "format/pytorch/object/torch_tensor.h"
#include "format/pytorch/torch_containers.h"

/* ---- nesting ---- */

enum { LIST_SPARE = 1024 };

/* A part of a path. */
struct part {
    const char *text; /* key in a dict; NULL: index in a list */
    uint32_t n_text;
    uint32_t index;
};

/* A container or leaf, and where it is. */
struct node {
    struct part part;
    uint32_t parent, id; /* values */
};

struct nesting {
    struct dcp_reading *reading;
    struct graph *graph;
    struct part *parts;    /* malloc'ed: of the path that was read last */
    uint32_t n_parts_most; /* of all paths that are not too deep */
    struct node *nodes;    /* malloc'ed */
    size_t n_nodes, n_room;
    struct map map;   /* of nodes, by parent and part */
    uint64_t n_empty; /* places of lists that nothing is in */
    uint32_t root, none;
    size_t n_flat;          /* keys whose path was not followed */
    const char *first_flat; /* the first of them */
};

static void nesting_done(struct nesting *n)
{
    const int saved = errno;
    free(n->parts);
    free(n->nodes);
    map_done(&n->map);
    errno = saved;
}

struct wanted {
    const struct nesting *nesting;
    uint32_t parent;
    const struct part *part;
};

static bool is_node(const void *ctx, uint32_t i)
{
    const struct wanted *wanted = ctx;
    const struct node *node = &wanted->nesting->nodes[i];
    const struct part *a = wanted->part, *b = &node->part;
    return node->parent == wanted->parent && (a->text == NULL) == (b->text == NULL) &&
           (a->text == NULL ? a->index == b->index
                            : a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0);
}

static uint64_t hash_of(uint32_t parent, const struct part *part)
{
    const uint32_t head[] = {parent, part->text == NULL, part->index};
    const uint64_t hash = hash_bytes(head, sizeof(head), hash_seed());
    return part->text == NULL ? hash : hash_bytes(part->text, part->n_text, hash);
}

/* Returns the value at a place in a container, 0: none. */
static uint32_t find(const struct nesting *n, uint32_t parent, const struct part *part)
{
    const struct wanted wanted = {n, parent, part};
    uint32_t i;
    return map_find(&n->map, hash_of(parent, part), is_node, &wanted, &i) ? n->nodes[i].id : 0;
}

/* Reads the parts of the path of a key. Returns how many they are; 0: joined with dots they are not
 * the key. */
static uint32_t read_path(struct nesting *n, uint32_t path, const struct dcp_key *key)
{
    const struct graph *planner = &n->reading->metadata->graph;
    const uint32_t n_parts = torch_n_args(planner, path);
    const char *at = key->name, *end = key->name + key->n_name;
    for (uint32_t i = 0; i < n_parts && n_parts <= n->n_parts_most; i++) {
        const struct value *value = graph_at(planner, torch_arg(planner, path, i));
        struct part part = {.text = value->text, .n_text = value->n};
        char number[16];
        if (value->kind != VALUE_TEXT) {
            if (i == 0 || value->kind != VALUE_INT || value->integer < 0 ||
                value->integer > INT32_MAX)
                return 0;
            part = (struct part){.text = number, .index = (uint32_t)value->integer};
            part.n_text = (uint32_t)snprintf(number, sizeof(number), "%u", part.index);
        }
        if ((i > 0 && (at == end || *at++ != '.')) || part.n_text > (size_t)(end - at) ||
            memcmp(at, part.text, part.n_text) != 0)
            return 0;
        at += part.n_text;
        n->parts[i] = value->kind == VALUE_TEXT ? part : (struct part){.index = part.index};
    }
    return at == end && n_parts <= n->n_parts_most ? n_parts : 0;
}

/* Returns whether the path can be followed from the root to a place where nothing is. */
static bool is_free(const struct nesting *n, uint32_t n_parts)
{
    uint32_t at = n->root;
    for (uint32_t i = 0; i < n_parts; i++) {
        const struct part *part = &n->parts[i];
        const struct value *value = at == 0 ? NULL : graph_at(n->graph, at);
        const uint32_t n_items = value == NULL ? 0 : value->n;
        if (value != NULL && value->kind != (part->text != NULL ? VALUE_DICT : VALUE_LIST))
            return false;
        if (part->text == NULL && part->index >= n_items &&
            n->n_empty + (part->index - n_items) > (uint64_t)n->reading->n_keys + LIST_SPARE)
            return false;
        at = at == 0 ? 0 : find(n, at, part);
        /* A leaf has the mark of containers only when it is one of ours. */
        if (at != 0 && (i + 1 == n_parts || (graph_at(n->graph, at)->marks & MARK_TENSOR) == 0))
            return false;
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
static int put(struct nesting *n, uint32_t parent, const struct part *part, uint32_t id)
{
    if (id == 0 || array_reserve(&n->nodes, sizeof(*n->nodes), n->n_nodes, 1, &n->n_room) < 0 ||
        map_add(&n->map, hash_of(parent, part), (uint32_t)n->n_nodes) < 0)
        return -ENOMEM;
    struct node *node = &n->nodes[n->n_nodes++];
    *node = (struct node){*part, parent, id};
    if (part->text == NULL)
        return set_item(n, parent, part->index, id);
    const uint32_t pair[] = {value_new_text(n->graph, part->text, part->n_text), id};
    if (pair[0] == 0)
        return -ENOMEM;
    node->part.text = graph_at(n->graph, pair[0])->text;
    return value_append(n->graph, parent, pair, 2);
}

/* Marked as if a tensor were in it, so that what is in it is listed one by one. */
static uint32_t container_new(struct nesting *n, enum value_kind kind)
{
    const uint32_t id = value_new(n->graph, kind);
    if (id != 0)
        graph_at(n->graph, id)->marks |= MARK_TENSOR;
    return id;
}

static int follow(struct nesting *n, uint32_t n_parts, uint32_t leaf)
{
    uint32_t at = n->root;
    for (uint32_t i = 0; i < n_parts; i++) {
        uint32_t next = find(n, at, &n->parts[i]);
        if (next == 0) {
            next = i + 1 == n_parts
                       ? leaf
                       : container_new(n, n->parts[i + 1].text != NULL ? VALUE_DICT : VALUE_LIST);
            if (put(n, at, &n->parts[i], next) < 0)
                return -ENOMEM;
        }
        at = next;
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

/* Puts every key into its place in a new root; without paths all are at the top. 1: done; 0: keys
 * contradict each other. */
static int put_all(struct nesting *n, const uint32_t *paths, const uint32_t *leaves)
{
    const struct dcp_reading *r = n->reading;
    n->root = container_new(n, VALUE_DICT);
    for (size_t i = 0; i < r->n_keys && n->root != 0; i++) {
        const struct dcp_key *key = &r->keys[i];
        const struct part top = {.text = key->name, .n_text = (uint32_t)key->n_name};
        const uint32_t path = paths == NULL ? 0 : paths[i];
        if (leaves[i] == 0)
            continue;
        uint32_t n_parts = path == 0 ? 0 : read_path(n, path, key);
        n_parts = is_free(n, n_parts) ? n_parts : 0;
        if (path != 0 && n_parts == 0 && n->n_flat++ == 0)
            n->first_flat = key->name;
        if (n_parts == 0 && find(n, n->root, &top) != 0)
            return 0;
        if ((n_parts > 0 ? follow(n, n_parts, leaves[i]) : put(n, n->root, &top, leaves[i])) < 0)
            return -ENOMEM;
    }
    return n->root == 0 ? -ENOMEM : 1;
}

static int tell_flat(const struct nesting *n, bool is_all_flat)
{
    struct wfs_catalog *catalog = n->reading->catalog;
    if (n->n_flat == 0)
        return 0;
    if (is_all_flat)
        return catalog_add_finding(catalog, WFS_LOW | WFS_FINDING_LOSS,
                                   "planner_data contradicts the keys, first about '%s': all keys "
                                   "are at the top",
                                   wfs_quote(n->first_flat).text);
    return catalog_add_finding(
        catalog, WFS_LOW | WFS_FINDING_LOSS,
        "%zu %s not where planner_data has %s, which contradicts the keys: '%s'", n->n_flat,
        n->n_flat == 1 ? "key is" : "keys are", n->n_flat == 1 ? "it" : "them",
        wfs_quote(n->first_flat).text);
}

/* Puts the items of the companion, a dict or 0, beside those of the root, as Lightning does. */
static int put_companion(struct nesting *n, uint32_t companion)
{
    const struct value *dict = companion == 0 ? NULL : graph_at(n->graph, companion);
    for (uint32_t i = 0; dict != NULL && i + 1 < dict->n; i += 2) {
        const uint32_t *item = value_items(dict) + i;
        const struct value *key = graph_at(n->graph, item[0]);
        const struct part part = {.text = key->text, .n_text = key->n};
        if (key->kind == VALUE_TEXT && find(n, n->root, &part) != 0)
            return wfs_fail(n->reading->err, EBADMSG,
                            "'%s' is in .metadata and in '" DCP_COMPANION "' beside it, whose "
                            "values belong to the checkpoint: move that file away to read it alone",
                            wfs_quote_n(key->text, key->n).text);
        if (value_append(n->graph, n->root, item, 2) < 0)
            return wfs_fail_memory(n->reading->err);
    }
    return 0;
}

/* Makes the root in the graph of the catalog: leaves[i] is the value of key i; 0: it is left out.
 */
static int nest(struct dcp_reading *reading, const uint32_t *leaves, uint32_t companion,
                uint32_t *ret_root)
{
    cleanup(nesting_done) struct nesting n = {.reading = reading,
                                              .graph = &reading->catalog->values.graph};
    autofree uint32_t *paths = collect_paths(reading);
    for (size_t i = 0; paths != NULL && i < reading->n_keys; i++) {
        const uint32_t n_parts = torch_n_args(&reading->metadata->graph, paths[i]);
        if (n_parts > n.n_parts_most && n_parts <= reading->context->limits.depth / 2)
            n.n_parts_most = n_parts;
    }
    n.parts = calloc((size_t)n.n_parts_most + 1, sizeof(*n.parts));
    n.none = value_new(n.graph, VALUE_NONE);
    int code =
        paths == NULL || n.parts == NULL || n.none == 0 ? -ENOMEM : put_all(&n, paths, leaves);
    const bool is_all_flat = code == 0;
    if (is_all_flat)
        code = put_all(&n, NULL, leaves);
    *ret_root = n.root;
    return code <= 0 || tell_flat(&n, is_all_flat) < 0 ? wfs_fail_memory(reading->err)
                                                       : put_companion(&n, companion);
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

static int tell_bad(struct listing *l, const struct dcp_key *key, const char *why)
{
    enum { MAX_TOLD = 20 };
    if (l->n_bad++ >= MAX_TOLD)
        return 0;
    return catalog_add_finding(l->reading->catalog, WFS_HIGH | WFS_FINDING_LOSS,
                               "the value '%s' cannot be read: %s", wfs_quote(key->name).text,
                               why) < 0
               ? wfs_fail_memory(l->reading->err)
               : 0;
}

/* Reads the pickle of an item, and keeps its zip where storages are in it. */
static int read_item(struct listing *l, const struct dcp_item *item, uint32_t *ret_root,
                     struct wfs_error *err)
{
    struct torch *torch = &l->torch;
    const uint32_t first = torch->graph->n_values + 1;
    if (array_reserve(&l->holders, sizeof(struct holder *), l->n_holders, 1, &l->n_holder_room) < 0)
        return -ENOMEM;
    struct holder *holder = calloc(1, sizeof(*holder));
    if (holder == NULL)
        return -ENOMEM;
    torch->source = holder->source = l->tables->files[item->file].source;
    torch->err = err;
    const int code = torch_zip_read(torch, item->offset, item->n_bytes, &holder->zip,
                                    &holder->records, ret_root);
    torch->err = l->reading->err;
    holder->is_big_endian = torch->is_big_endian;
    torch->is_big_endian = false;
    holder->last = torch->graph->n_values;
    bool has_storages = false;
    for (uint32_t id = first; id <= holder->last && !has_storages; id++)
        has_storages = torch_is_storage(torch->graph, id);
    if (code == 0 && has_storages)
        l->holders[l->n_holders++] = holder;
    else
        holder_free(holder);
    return code;
}

/* Returns the item that a key is a value of; NULL: it is a tensor of the tables. */
static const struct dcp_item *item_of(const struct listing *l, const struct dcp_key *key)
{
    if (!key->is_tensor)
        return &l->tables->items[key->number];
    const struct dcp_tensor *tensor = &l->tables->tensors[key->number];
    return tensor->is_object ? &l->tables->items[tensor->parts[0].item] : NULL;
}

/* Reads the value of a key into the graph: *ret_root is 0 where it cannot be read. */
static int read_value(struct listing *l, const struct dcp_key *key, const struct dcp_item *item,
                      uint32_t *ret_root)
{
    struct wfs_error err = {0};
    autostrbuf struct strbuf why = {0};
    if (key->trouble != NULL)
        return tell_bad(l, key, key->trouble);
    const int code = read_item(l, item, ret_root, &err);
    if (code == 0)
        return 0;
    *ret_root = 0;
    if (code == -ENOMEM)
        return wfs_fail_memory(l->reading->err);
    if (!torch_is_trouble(code) || (code == -E2BIG && l->torch.budget.n_opcodes == 0))
        return wfs_fail(l->reading->err, -code, "the value '%s': %s", wfs_quote(key->name).text,
                        err.text);
    strbuf_printf(&why, "its %s at byte %llu of '%s': %s", wfs_count(item->n_bytes, "byte").text,
                  (unsigned long long)item->offset,
                  wfs_quote(l->tables->files[item->file].name).text, err.text);
    return tell_bad(l, key, why.bytes != NULL ? why.bytes : err.text);
}

/* Reads the file beside the checkpoint: *ret is its dict; 0: there is none. */
static int read_companion(struct listing *l, uint32_t *ret)
{
    const struct dcp_reading *r = l->reading;
    const struct dcp_key key = {.name = DCP_COMPANION};
    struct catalog_companion *companion = &r->catalog->own->companion;
    if (r->companion == 0)
        return 0;
    const struct dcp_item *item = &l->tables->items[r->companion - 1];
    companion->first = l->torch.graph->n_values + 1;
    const int code = read_value(l, &key, item, ret);
    companion->last = l->torch.graph->n_values;
    if (*ret == 0)
        return code;
    if (graph_at(l->torch.graph, *ret)->kind != VALUE_DICT) {
        *ret = 0;
        return tell_bad(l, &key, "it is not a dict");
    }
    companion->source = l->tables->files[item->file].source;
    return 0;
}

/* Makes the values of all keys: those that are read, then those that stand for tensors. */
static int make_leaves(struct listing *l, uint32_t *leaves, uint32_t *ret_companion)
{
    const struct dcp_reading *r = l->reading;
    struct graph *graph = l->torch.graph;
    int code = 0;
    for (size_t i = 0; i < r->n_keys && code == 0; i++) {
        const struct dcp_item *item = item_of(l, &r->keys[i]);
        code = item == NULL ? 0 : read_value(l, &r->keys[i], item, &leaves[i]);
        struct value *value = leaves[i] == 0 ? NULL : graph_at(graph, leaves[i]);
        if (value != NULL && !r->keys[i].is_tensor &&
            (value->kind == VALUE_DICT || value->kind == VALUE_LIST || value->kind == VALUE_CALL))
            value->marks |= MARK_WHOLE;
    }
    if (code == 0)
        code = read_companion(l, ret_companion);
    if (code < 0)
        return code;
    l->first_tensor = graph->n_values + 1;
    for (size_t i = 0; i < r->n_keys; i++) {
        if (item_of(l, &r->keys[i]) != NULL)
            continue;
        const uint32_t number = value_new_integer(graph, r->keys[i].number);
        leaves[i] = number == 0 ? 0 : value_new(graph, VALUE_PERSISTENT);
        if (leaves[i] == 0)
            return wfs_fail_memory(r->err);
        graph_at(graph, leaves[i])->id = number;
    }
    return 0;
}

/* Adds a finding about tensors that only a file of PyTorch holds as they are. */
static int tell_objects(const struct listing *l)
{
    const struct dcp_tensor *first = NULL;
    size_t n = 0;
    for (uint32_t i = l->tables->n_tensors; i-- > 0;)
        if (l->tables->tensors[i].is_object) {
            first = &l->tables->tensors[i];
            n++;
        }
    return n == 0 ? 0
                  : catalog_add_finding(
                        l->reading->catalog, WFS_INFO,
                        "%s of quantized elements or of a class of its own, such as '%s': a .pth "
                        "file keeps it as it is, other formats only what it is made of",
                        wfs_count(n, "tensor").text, wfs_quote(first->key).text);
}

int dcp_values_tell(struct wfs_catalog *catalog)
{
    const struct wfs_tensor *first = NULL;
    size_t n = 0;
    for (size_t i = catalog->n_tensors; i-- > 0;) {
        if (catalog->tensors[i].trouble == NULL)
            continue;
        n++;
        first = &catalog->tensors[i];
    }
    return n == 0 ? 0
                  : catalog_add_finding(catalog, WFS_HIGH | WFS_FINDING_LOSS,
                                        "%zu of %s cannot be read; the first is '%s': %s", n,
                                        wfs_count(catalog->n_tensors, "tensor").text,
                                        wfs_quote(first->key).text, first->trouble);
}

int dcp_values_list(struct dcp_reading *r, struct source *assembly)
{
    struct wfs_catalog *catalog = r->catalog;
    cleanup(listing_done) struct listing l = {
        .reading = r, .assembly = assembly, .tables = dcp_assembly_tables(assembly)};
    cleanup(torch_dangers_done) struct torch_dangers dangers = {0};
    autofree uint32_t *leaves = calloc(r->n_keys + 1, sizeof(*leaves));
    catalog->values.graph = (struct graph){.notation = &python_notation, .arena = &catalog->arena};
    l.torch = (struct torch){.catalog = catalog,
                             .graph = &catalog->values.graph,
                             .limits = &r->context->limits,
                             .err = r->err,
                             .source = catalog->sources.list[0],
                             .dangers = &dangers,
                             .budget = pickle_budget_of(&r->context->limits),
                             .is_forced = r->context->force};
    if (leaves == NULL)
        return wfs_fail_memory(r->err);
    uint32_t beside = 0;
    int code = make_leaves(&l, leaves, &beside);
    if (code == 0)
        code = nest(r, leaves, beside, &catalog->values.root);
    if (code < 0)
        return code;
    l.torch.find = find_storage;
    l.torch.is_tensor = is_tensor;
    l.torch.find_tensor = find_tensor;
    l.torch.container = &l;
    catalog->values.pickle = (struct value_bytes){0};
    code = torch_listing_add(&l.torch, catalog->values.root, "");
    if (code == 0)
        code = torch_storage_list(&l.torch);
    if (code < 0)
        return code;
    struct catalog_companion *companion = &catalog->own->companion;
    if (companion->source != NULL)
        companion->hash =
            dcp_companion_hash(companion, &catalog->values.graph, catalog->values.root);
    catalog->values.pickle = (struct value_bytes){0};
    torch_dangers_report(&l.torch);
    if (l.torch.has_failed || dcp_values_tell(catalog) < 0 || tell_objects(&l) < 0)
        return wfs_fail_memory(r->err);
    /* Names that are spelled alike got ~2 behind them. */
    const uint64_t n = l.torch.names.n_clashes + l.torch.value_names.n_clashes;
    return n > 0 && catalog_add_finding(catalog, WFS_LOW,
                                        "%s spelled like another one, with ~2, ~3 ... appended",
                                        wfs_count_as(n, "key is", "keys are").text) < 0
               ? wfs_fail_memory(r->err)
               : 0;
}
