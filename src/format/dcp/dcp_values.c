/* SPDX-License-Identifier: MIT */
/*
 * The value of a key is the pickle of a torch.save file. Its storages, if it has tensors in it, are
 * in that file: what a storage belongs to is known by the number of the value that names it. In
 * the graph, a tensor of the checkpoint is a persistent value with its number.
 */
#include "format/dcp/dcp_values.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/dcp/dcp_nesting.h"
#include "format/pytorch/object/python_json.h"
#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_cache.h"
#include "format/pytorch/object/torch_dangers.h"
#include "format/pytorch/object/torch_listing.h"
#include "format/pytorch/object/torch_storage.h"
#include "format/pytorch/object/torch_storage_id.h"
#include "format/pytorch/object/torch_tensor.h"
#include "format/pytorch/torch_zip.h"

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

/* Returns whether the elements are known to lie in one file as they are shown. */
static bool is_one_range(const struct dcp_tensor *tensor)
{
    return tensor->n_parts == 1 && tensor->parts[0].data != 0 && !tensor->parts[0].is_odd;
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
    if (is_one_range(tensor)) {
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
        code = dcp_nesting_make(r, leaves, &catalog->root);
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
