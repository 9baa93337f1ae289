/* SPDX-License-Identifier: MIT */
/*
 * A storage is named by an id, for which the container finds the bytes, or is a whole stream in a
 * byte string.
 */
#include "format/pytorch/object/torch_storage.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_bytes.h"
#include "format/pytorch/object/torch_cache.h"
#include "format/pytorch/object/torch_dangers.h"
#include "format/pytorch/object/torch_global.h"
#include "format/pytorch/object/torch_storage_id.h"
#include "format/pytorch/object/torch_stream.h"

enum { MAX_STREAM_DEPTH = 2 };

static int storage_of_persistent(struct torch *torch, uint32_t id, struct torch_storage *ret)
{
    struct torch_storage_id storage_id;
    *ret = (struct torch_storage){.dtype = WFS_U8};
    if (!torch_storage_id_parse(torch, id, &storage_id, &ret->trouble))
        return 1;
    ret->trouble = NULL;
    ret->dtype = storage_id.class->dtype;
    if (storage_id.is_meta) {
        ret->is_absent = true;
        ret->n_bytes = storage_id.n_bytes;
        return 1;
    }
    const int code = torch->find(torch, &storage_id, ret);
    return code < 0 ? code : 1;
}

static int read_stream(struct torch *torch, const struct value_bytes *bytes,
                       struct torch_stream *stream, struct torch_storage *ret)
{
    uint64_t offset = bytes->offset;
    uint32_t root;
    torch->find = torch_stream_find;
    torch->find_tensor = NULL;
    torch->container = stream;
    const int code = torch_stream_read(torch, bytes->source, &offset,
                                       bytes->offset + bytes->n_bytes, stream, &root);
    if (code == 0 && !torch_is_storage(torch->graph, root))
        return wfs_fail(torch->err, EBADMSG, "it does not contain a storage");
    return code < 0 ? code : torch_storage_of(torch, root, ret);
}

/* Reads a whole stream that stands for one storage, with a graph of its own. */
static int storage_of_stream(struct torch *torch, const struct value_bytes *bytes,
                             struct torch_storage *ret)
{
    cleanup(torch_stream_done) struct torch_stream stream = {0};
    cleanup(arena_done) struct arena arena = {.limit = torch->catalog->arena.limit};
    struct graph graph = {.arena = &arena};
    struct wfs_error err = {0};
    struct torch inner = *torch;
    inner.graph = &graph;
    inner.err = &err;
    inner.cache = (struct torch_cache){0};
    inner.depth++;
    int code = read_stream(&inner, bytes, &stream, ret);
    if (torch_dangers_add(&inner, 1) < 0)
        code = -ENOMEM;
    torch->budget = inner.budget;
    torch->has_failed = inner.has_failed;
    torch->n_long = inner.n_long;
    torch_cache_done(&inner);
    if (code == -ENOMEM && arena.is_full) {
        err = (struct wfs_error){0};
        code = wfs_fail(&err, E2BIG, "it takes more memory than the limit (index_memory)");
    }
    if (torch_is_trouble(code)) {
        *ret = (struct torch_storage){.dtype = WFS_U8};
        ret->trouble = torch_print(torch, "the stream of its storage cannot be read: %s", err.text);
        return 1;
    }
    return code < 0 ? wfs_fail(torch->err, -code, "%s", err.text) : code;
}

static int storage_of_bytes(struct torch *torch, uint32_t id, struct torch_storage *ret)
{
    struct torch_cache_entry *entry = torch_cache_find(torch, id);
    struct value_bytes bytes;
    if (entry != NULL) {
        *ret = entry->storage;
        return 1;
    }
    *ret = (struct torch_storage){.dtype = WFS_U8};
    int code = torch_bytes_of(
        torch, torch_arg(torch->graph, graph_at(torch->graph, id)->call.args, 0), &bytes);
    if (code < 0)
        return code;
    if (code == 0)
        ret->trouble = "the stream of its storage is not made of bytes";
    else if (torch->depth >= MAX_STREAM_DEPTH)
        ret->trouble = "its storage is a stream in a stream in a stream";
    else if ((code = storage_of_stream(torch, &bytes, ret)) < 0)
        return code;
    entry = torch_cache_add(torch, id);
    if (entry == NULL)
        return wfs_fail_memory(torch->err);
    entry->is_good = true;
    entry->storage = *ret;
    /* What is not a stream for us may be one for Python, with any pickle in it. */
    const uint32_t function = graph_at(torch->graph, id)->call.callable;
    if (ret->trouble != NULL && graph_at(torch->graph, function)->kind == VALUE_GLOBAL &&
        torch_dangers_note(torch, graph_at(torch->graph, function)->global) < 0)
        return wfs_fail_memory(torch->err);
    return 1;
}

int torch_storage_of(struct torch *torch, uint32_t id, struct torch_storage *ret)
{
    if (id == 0)
        return 0;
    const struct value *value = graph_at(torch->graph, id);
    if (value->kind == VALUE_PERSISTENT)
        return storage_of_persistent(torch, id, ret);
    if (torch_what_of(torch->graph, value) == WHAT_LOAD_FROM_BYTES)
        return storage_of_bytes(torch, id, ret);
    return 0;
}

static bool is_storage(const struct torch *torch, uint32_t id)
{
    const struct value *value = graph_at(torch->graph, id);
    if (value->kind == VALUE_PERSISTENT)
        return torch_is_storage(torch->graph, id);
    return torch_what_of(torch->graph, value) == WHAT_LOAD_FROM_BYTES;
}

static int keep(struct torch *torch, uint32_t id, struct catalog_storage *ret)
{
    struct torch_storage storage;
    struct torch_storage_id parsed;
    const char *trouble;
    const int code = torch_storage_of(torch, id, &storage);
    if (code <= 0)
        return code;
    if (storage.is_absent || storage.trouble != NULL)
        return 0;
    *ret = (struct catalog_storage){.source = storage.source,
                                    .offset = storage.offset,
                                    .n_bytes = storage.n_bytes,
                                    .id = id,
                                    .crc = storage.crc,
                                    .dtype = (uint8_t)storage.dtype,
                                    .has_crc = storage.has_crc,
                                    .is_big_endian = storage.is_big_endian};
    if (graph_at(torch->graph, id)->kind != VALUE_PERSISTENT ||
        !torch_storage_id_parse(torch, id, &parsed, &trouble))
        return 1;
    ret->is_untyped = parsed.class->what == WHAT_UNTYPED_STORAGE;
    if (parsed.view_bytes == UINT64_MAX)
        ret->n_bytes = parsed.n_bytes;
    return 1;
}

int torch_storage_list(struct torch *torch)
{
    struct wfs_catalog *catalog = torch->catalog;
    const uint32_t n_values = torch->graph->n_values;
    uint32_t n = 0;
    for (uint32_t id = 1; id <= n_values; id++)
        n += is_storage(torch, id);
    catalog->storages = arena_calloc(&catalog->arena, n, sizeof(*catalog->storages));
    if (catalog->storages == NULL)
        return wfs_fail_memory(torch->err);
    for (uint32_t id = 1; id <= n_values && catalog->n_storages < n; id++) {
        if (!is_storage(torch, id))
            continue;
        const int code = keep(torch, id, &catalog->storages[catalog->n_storages]);
        if (code < 0)
            return code;
        catalog->n_storages += code == 1;
    }
    /* A pickle that breaks rules of torch cannot be copied unchanged. */
    if (torch->n_mixed > 0 || torch->is_big_endian || catalog->n_storages < n ||
        (torch->notes & (PICKLE_TEXT_ID | PICKLE_LATIN1)) != 0)
        catalog->pickle.source = NULL;
    catalog->is_object = true;
    return 0;
}

const struct catalog_storage *torch_storage_at(const struct wfs_catalog *catalog, uint32_t id)
{
    const struct catalog_storage *storages = catalog->storages;
    uint32_t low = 0, high = catalog->n_storages;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (storages[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < catalog->n_storages && storages[low].id == id ? &storages[low] : NULL;
}
