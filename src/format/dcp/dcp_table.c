/* SPDX-License-Identifier: MIT */
/*
 * Keys first, then the items, then the parts of each tensor: a part finds its item by key and
 * offset. The metadata of several ranks is united: a key that two of them have is one tensor with
 * the chunks of both.
 */
#include "format/dcp/dcp_reading.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch/object/torch_call.h"

void dcp_reading_done(struct dcp_reading *reading)
{
    const int saved = errno;
    dcp_tables_done(&reading->tables);
    dcp_items_done(&reading->items);
    free(reading->keys);
    text_index_done(&reading->names);
    errno = saved;
}

/* ---- keys ---- */

static int add_key(struct dcp_reading *t, uint32_t name, uint32_t described)
{
    const struct value *text = graph_at(&t->metadata->graph, name);
    const enum dcp_class class = dcp_class_of(&t->metadata->graph, described);
    uint32_t number;
    if (text->kind != VALUE_TEXT)
        return wfs_fail(t->err, EBADMSG, "a key of its state_dict_metadata is not a text");
    if (class != DCP_TENSOR && class != DCP_BYTES)
        return wfs_fail(t->err, EBADMSG, "'%s' is described as neither a tensor nor a value",
                        wfs_quote_n(text->text, text->n).text);
    if (t->n_keys >= t->context->limits.tensors)
        return wfs_fail(t->err, E2BIG, "more than %s (limit tensors)",
                        wfs_count(t->context->limits.tensors, "key").text);
    if (text->n > t->context->limits.key)
        return wfs_fail(t->err, E2BIG, "a key has %s, above the limit of %" PRIu64 " (key)",
                        wfs_count(text->n, "byte").text, t->context->limits.key);
    const uint32_t n_before = (uint32_t)t->names.n_texts;
    if (text_index_add(&t->names, text->text, text->n, &number) < 0 ||
        array_reserve(&t->keys, sizeof(*t->keys), t->n_keys, 1, &t->n_key_room) < 0)
        return wfs_fail_memory(t->err);
    if (number != n_before)
        return 0;
    struct dcp_key *key = &t->keys[t->n_keys++];
    *key = (struct dcp_key){.n_name = text->n, .is_tensor = class == DCP_TENSOR};
    key->name = arena_copy(&t->tables.arena, text->text, text->n);
    key->number = key->is_tensor ? t->tables.n_tensors++ : 0;
    return key->name == NULL ? wfs_fail_memory(t->err) : 0;
}

/* Calls a function for each key of each file of metadata, and what describes it. */
static int each_key(struct dcp_reading *t,
                    int (*call)(struct dcp_reading *t, uint32_t name, uint32_t described))
{
    const struct graph *graph = &t->metadata->graph;
    for (size_t i = 0; i < t->metadata->n_roots; i++) {
        const struct value *dict =
            graph_at(graph, dcp_field(graph, t->metadata->roots[i], "state_dict_metadata"));
        for (uint32_t k = 0; k + 1 < dict->n; k += 2) {
            const int code = call(t, value_items(dict)[k], value_items(dict)[k + 1]);
            if (code < 0)
                return code;
        }
    }
    return 0;
}

static struct dcp_key *key_at(const struct dcp_reading *t, uint32_t name)
{
    const struct value *text = graph_at(&t->metadata->graph, name);
    return &t->keys[text_index_find(&t->names, text->text, text->n)];
}

/* ---- tensors ---- */

/* Spoils a tensor by the trouble of the item of one of its chunks; NULL: it has no item. */
static int spoil_chunk(struct dcp_reading *t, struct dcp_tensor *tensor, const int64_t *at,
                       const char *trouble)
{
    autostrbuf struct strbuf text = {.n_max = 500};
    if (tensor->trouble != NULL)
        return 0;
    strbuf_puts(&text, "its chunk at ");
    dcp_print_numbers(&text, at, tensor->rank);
    strbuf_puts(&text, trouble == NULL ? " has no entry in storage_data" : ": ");
    strbuf_puts(&text, trouble == NULL ? "" : trouble);
    tensor->trouble =
        text.bytes == NULL ? NULL : arena_copy(&t->tables.arena, text.bytes, text.n_bytes);
    return tensor->trouble == NULL ? wfs_fail_memory(t->err) : 0;
}

/* Reads (dtype, layout, ...), the state of the properties. */
static const char *read_dtype(struct dcp_reading *t, uint32_t properties, struct dcp_tensor *tensor)
{
    struct graph *graph = &t->metadata->graph;
    const uint32_t state =
        dcp_class_of(graph, properties) == DCP_PROPERTIES ? dcp_state_of(graph, properties) : 0;
    const uint32_t first = torch_arg(graph, state, 0);
    const struct torch_global *dtype = torch_global_of(graph, first);
    if (first == 0)
        return "its properties do not have a dtype";
    if (dtype == NULL || dtype->what != WHAT_DTYPE ||
        (wfs_dtype_bits(dtype->dtype) < 8 && dtype->dtype != WFS_F4)) {
        const char *text = arena_print(&t->tables.arena, "its dtype %s is not supported",
                                       graph_at(graph, first)->kind == VALUE_GLOBAL
                                           ? wfs_quote(graph_at(graph, first)->global->name).text
                                           : "?");
        return text == NULL ? "its dtype is not supported" : text;
    }
    tensor->dtype = dtype->dtype;
    tensor->n_elem = wfs_dtype_bits(dtype->dtype) < 8 ? 1 : wfs_dtype_bits(dtype->dtype) / 8;
    return NULL;
}

static const char *read_size(struct dcp_reading *t, const int64_t *numbers,
                             struct dcp_tensor *tensor)
{
    if (tensor->rank > t->context->limits.rank)
        return "its number of dimensions is above the limit (rank)";
    tensor->dims = arena_calloc(&t->tables.arena, (size_t)tensor->rank + 1, sizeof(*tensor->dims));
    if (tensor->dims == NULL)
        return NULL; /* the caller sees it */
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (numbers[i] < 0)
            return "its size is negative";
        tensor->dims[i] = (uint64_t)numbers[i];
    }
    return dcp_tensor_measure(tensor);
}

/* Reads what all chunks have in common. */
static int read_tensor(struct dcp_reading *t, const struct dcp_key *key, uint32_t described)
{
    struct dcp_tensor *tensor = &t->tables.tensors[key->number];
    struct dcp_metadata *m = t->metadata;
    uint32_t first;
    tensor->key = key->name;
    tensor->dtype = WFS_OPAQUE;
    tensor->n_elem = 1;
    dcp_tensor_spoil(tensor, read_dtype(t, dcp_field(&m->graph, described, "properties"), tensor));
    const int code =
        dcp_metadata_numbers(m, dcp_field(&m->graph, described, "size"), &first, &tensor->rank);
    if (code < 0)
        return code == -E2BIG ? wfs_fail(t->err, E2BIG,
                                         "its shapes have more numbers than the limit index_memory "
                                         "allows")
                              : wfs_fail_memory(t->err);
    if (code == 0) {
        tensor->rank = 0;
        dcp_tensor_spoil(tensor, "its size is not a tuple of integers of 64 bits");
    } else {
        const char *trouble = read_size(t, &m->numbers[first], tensor);
        if (tensor->dims == NULL && trouble == NULL)
            return wfs_fail_memory(t->err);
        tensor->rank = tensor->dims == NULL ? 0 : tensor->rank;
        dcp_tensor_spoil(tensor, trouble);
    }
    return 0;
}

/* Returns the tensor that one file describes; NULL: there, or in the first file, it is a value. */
static struct dcp_tensor *tensor_of(struct dcp_reading *t, uint32_t name, uint32_t described)
{
    const struct dcp_key *key = key_at(t, name);
    return key->is_tensor && dcp_class_of(&t->metadata->graph, described) == DCP_TENSOR
               ? &t->tables.tensors[key->number]
               : NULL;
}

/* Counts the chunks of a tensor, and reads the rest at its first file. */
static int count_chunks(struct dcp_reading *t, uint32_t name, uint32_t described)
{
    const struct graph *graph = &t->metadata->graph;
    struct dcp_tensor *tensor = tensor_of(t, name, described);
    if (tensor == NULL)
        return 0;
    int code = tensor->key == NULL ? read_tensor(t, key_at(t, name), described) : 0;
    const uint32_t n = torch_n_args(graph, dcp_field(graph, described, "chunks"));
    t->tables.n_parts += n;
    tensor->n_parts += n;
    if (code == 0 &&
        (n > t->context->limits.chunks || t->tables.n_parts > t->context->limits.chunks))
        code = wfs_fail(t->err, E2BIG, "more than %s (limit chunks)",
                        wfs_count(t->context->limits.chunks, "chunk").text);
    return code;
}

/* ---- parts ---- */

static bool is_empty_box(const int64_t *sizes, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++) {
        if (sizes[i] == 0)
            return true;
    }
    return false;
}

/* Adds one chunk as a part, with its item. */
static int add_part(struct dcp_reading *t, struct dcp_tensor *tensor, uint32_t key, uint32_t id)
{
    const struct dcp_chunk *chunk = dcp_chunk_of(t->metadata, id);
    uint32_t item;
    if (chunk == NULL) {
        dcp_tensor_spoil(
            tensor, "a chunk is not described by offsets and sizes that are integers of 64 bits");
        return 0;
    }
    if (chunk->rank != tensor->rank) {
        dcp_tensor_spoil(tensor, "a chunk has another number of dimensions");
        return 0;
    }
    const int64_t *box = &t->metadata->numbers[chunk->box];
    if (is_empty_box(box + chunk->rank, chunk->rank))
        return 0;
    if (!dcp_items_find(t, key, box, chunk->rank, tensor->n_parts, &item))
        return spoil_chunk(t, tensor, box, NULL);
    t->tables.items[item].is_used = true;
    const int code = dcp_items_open(t, item);
    if (code < 0)
        return code;
    if (t->tables.items[item].trouble != NULL)
        return spoil_chunk(t, tensor, box, t->tables.items[item].trouble);
    struct dcp_part *part = &tensor->parts[tensor->n_parts++];
    part->box = box;
    part->item = item;
    return 0;
}

/* Adds the chunks that one file has of a tensor. */
static int add_parts(struct dcp_reading *t, uint32_t name, uint32_t described)
{
    const struct graph *graph = &t->metadata->graph;
    struct dcp_tensor *tensor = tensor_of(t, name, described);
    const uint32_t key = (uint32_t)(key_at(t, name) - t->keys);
    const uint32_t chunks = tensor == NULL ? 0 : dcp_field(graph, described, "chunks");
    int code = 0;
    for (uint32_t i = 0; i < torch_n_args(graph, chunks) && code == 0; i++)
        code = add_part(t, tensor, key, torch_arg(graph, chunks, i));
    return code;
}

static int make_parts(struct dcp_reading *t)
{
    struct dcp_tables *tables = &t->tables;
    tables->parts = calloc((size_t)tables->n_parts + 1, sizeof(*tables->parts));
    if (tables->parts == NULL)
        return wfs_fail_memory(t->err);
    uint32_t n = 0;
    for (uint32_t i = 0; i < tables->n_tensors; i++) {
        tables->tensors[i].parts = tables->parts + n;
        n += tables->tensors[i].n_parts;
        tables->tensors[i].n_parts = 0;
    }
    int code = each_key(t, add_parts);
    for (uint32_t i = 0; i < tables->n_tensors && code == 0; i++) {
        struct dcp_tensor *tensor = &tables->tensors[i];
        if (tensor->trouble == NULL)
            tensor->trouble = dcp_boxes_check(tensor, &tables->arena, &code);
        if (code < 0)
            return wfs_fail_memory(t->err);
    }
    return code;
}

/* ---- values ---- */

static int find_values(struct dcp_reading *t)
{
    int code = 0;
    for (size_t i = 0; i < t->n_keys && code == 0; i++) {
        struct dcp_key *key = &t->keys[i];
        if (key->is_tensor)
            continue;
        if (!dcp_items_find(t, (uint32_t)i, NULL, DCP_NO_OFFSET, 0, &key->number)) {
            key->trouble = "it has no entry in storage_data";
            continue;
        }
        t->tables.items[key->number].is_used = true;
        code = dcp_items_open(t, key->number);
    }
    return code;
}

/* Spoils the tensors with parts whose items have a trouble by now, and sets those of values. */
static int spread_troubles(struct dcp_reading *t)
{
    int code = 0;
    for (uint32_t i = 0; i < t->tables.n_tensors && code == 0; i++) {
        struct dcp_tensor *tensor = &t->tables.tensors[i];
        for (uint32_t k = 0; k < tensor->n_parts && tensor->trouble == NULL && code == 0; k++) {
            const struct dcp_part *part = &tensor->parts[k];
            if (t->tables.items[part->item].trouble != NULL)
                code = spoil_chunk(t, tensor, part->box, t->tables.items[part->item].trouble);
        }
    }
    for (size_t i = 0; i < t->n_keys; i++) {
        struct dcp_key *key = &t->keys[i];
        if (!key->is_tensor && key->trouble == NULL)
            key->trouble = t->tables.items[key->number].trouble;
    }
    return code;
}

int dcp_table_fill(struct dcp_reading *t)
{
    t->tables.arena.limit = t->context->limits.index_memory;
    t->tables.limits = t->context->limits;
    int code = each_key(t, add_key);
    if (code < 0)
        return code;
    t->tables.tensors = calloc((size_t)t->tables.n_tensors + 1, sizeof(*t->tables.tensors));
    if (t->tables.tensors == NULL)
        return wfs_fail_memory(t->err);
    if ((code = each_key(t, count_chunks)) < 0 || (code = dcp_items_add(t)) < 0 ||
        (code = make_parts(t)) < 0 || (code = find_values(t)) < 0 ||
        (code = dcp_items_check(t)) < 0 || (code = spread_troubles(t)) < 0)
        return code;
    dcp_items_done(&t->items);
    t->tables.numbers = t->metadata->numbers;
    t->metadata->numbers = NULL;
    return 0;
}
