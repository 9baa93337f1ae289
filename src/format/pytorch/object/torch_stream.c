/* SPDX-License-Identifier: MIT */
/*
 * The pickles of a stream: a magic number, 1001, facts about the machine, the object, the keys of
 * the storages. Then, for each key, an i64 number of elements and the elements. Only the object
 * declares the size of an element, by the class that it names with the key.
 */
#include "format/pytorch/object/torch_stream.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_global.h"
#include "format/pytorch/object/torch_storage_id.h"

static const uint8_t magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

enum { PROTOCOL = 1001 };

bool torch_stream_is_magic(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    return value->kind == VALUE_BIG && value->n == sizeof(magic) &&
           memcmp(value->text, magic, sizeof(magic)) == 0;
}

void torch_stream_done(struct torch_stream *stream)
{
    free(stream->storages);
    map_done(&stream->map);
    *stream = (struct torch_stream){0};
}

struct wanted {
    const struct torch_stream *stream;
    const char *key;
    size_t n_key;
};

static bool is_wanted(const void *ctx, uint32_t i)
{
    const struct wanted *wanted = ctx;
    const struct torch_stream_storage *storage = &wanted->stream->storages[i];
    return storage->n_key == wanted->n_key && memcmp(storage->key, wanted->key, wanted->n_key) == 0;
}

static struct torch_stream_storage *find_storage(const struct torch_stream *stream, const char *key,
                                                 size_t n_key)
{
    const struct wanted wanted = {stream, key, n_key};
    uint32_t i;
    return map_find(&stream->map, hash_bytes(key, n_key, hash_seed()), is_wanted, &wanted, &i)
               ? &stream->storages[i]
               : NULL;
}

static int add_storage(struct torch_stream *stream, struct graph *graph,
                       const struct torch_storage_id *id)
{
    if (array_reserve(&stream->storages, sizeof(*stream->storages), stream->n_storages, 1,
                      &stream->n_room) < 0)
        return -ENOMEM;
    const char *key =
        id->key == id->number ? arena_copy(graph->arena, id->key, id->n_key) : id->key;
    if (key == NULL ||
        map_add(&stream->map, hash_bytes(id->key, id->n_key, hash_seed()), stream->n_storages) < 0)
        return -ENOMEM;
    stream->storages[stream->n_storages++] = (struct torch_stream_storage){
        .key = key, .n_key = id->n_key, .class = id->class, .n_declared = id->n_bytes};
    return 0;
}

/* Collects all storages that the object names. Its values begin at first. */
static int collect(struct torch *torch, struct torch_stream *stream, uint32_t first)
{
    for (uint32_t id = first; id <= torch->graph->n_values; id++) {
        struct torch_storage_id storage_id;
        const char *trouble;
        if (!torch_is_storage(torch->graph, id) ||
            !torch_storage_id_parse(torch, id, &storage_id, &trouble))
            continue;
        const struct torch_stream_storage *storage =
            find_storage(stream, storage_id.key, storage_id.n_key);
        if (storage == NULL) {
            if (add_storage(stream, torch->graph, &storage_id) < 0)
                return wfs_fail_memory(torch->err);
        } else if (storage->class != storage_id.class) {
            torch->n_mixed++;
            torch->n_mixed_empty += storage->n_declared == 0;
        }
    }
    return 0;
}

/* Fails because of a damaged storage; with force it only becomes a trouble of its tensors. */
static int spoil(struct torch *torch, struct torch_stream_storage *storage, const char *text)
{
    storage->trouble = text;
    return torch->is_forced ? 0 : wfs_fail(torch->err, EBADMSG, "%s", text);
}

/* Reads the header of the storage at *offset, and moves to the next one. */
static int place(struct torch *torch, struct torch_stream *stream,
                 struct torch_stream_storage *storage, uint64_t *offset, uint64_t end)
{
    const struct wfs_quoted key = wfs_quote_n(storage->key, storage->n_key);
    uint8_t number[8];
    uint64_t n_bytes;
    if (storage->is_listed)
        return wfs_fail(torch->err, EBADMSG, "storage %s is listed twice", key.text);
    storage->is_listed = true;
    if (end - *offset < sizeof(number)) {
        *offset = end;
        return spoil(torch, storage,
                     torch_print(torch, "the file ends before storage %s", key.text));
    }
    const int code = source_read(stream->source, *offset, number, sizeof(number));
    if (code < 0)
        return torch_fail_read(torch, code, torch_print(torch, "storage %s", key.text));
    *offset += sizeof(number);
    const uint64_t n = load_le64(number);
    if (n > INT64_MAX || !checked_mul(n, torch_storage_item(storage->class), &n_bytes))
        return wfs_fail(torch->err, EBADMSG, "storage %s has a length of %s", key.text,
                        wfs_count(n, "element").text);
    storage->offset = *offset;
    storage->n_bytes = n_bytes;
    if (n_bytes != storage->n_declared)
        return wfs_fail(torch->err, EBADMSG,
                        "storage %s has %s in the stream, but %llu in the pickle", key.text,
                        wfs_count(n_bytes, "byte").text, (unsigned long long)storage->n_declared);
    if (n_bytes > end - *offset) {
        const uint64_t n_left = end - *offset;
        *offset = end;
        return spoil(torch, storage,
                     torch_print(torch, "the file ends %s before storage %s does",
                                 wfs_count((n_bytes - n_left), "byte").text, key.text));
    }
    *offset += n_bytes;
    return 0;
}

static int place_all(struct torch *torch, struct torch_stream *stream, uint32_t keys,
                     uint64_t *offset, uint64_t end)
{
    const struct graph *graph = torch->graph;
    if (graph_at(graph, keys)->kind != VALUE_LIST)
        return wfs_fail(torch->err, EBADMSG, "the stream has no list of storages");
    for (uint32_t i = 0; i < torch_n_args(graph, keys); i++) {
        const struct value *key = graph_at(graph, torch_arg(graph, keys, i));
        struct torch_stream_storage *storage =
            key->kind == VALUE_TEXT ? find_storage(stream, key->text, key->n) : NULL;
        if (storage == NULL)
            return wfs_fail(torch->err, EBADMSG,
                            "storage %s is listed, but the pickle does not declare its type",
                            key->kind == VALUE_TEXT ? wfs_quote_n(key->text, key->n).text : "?");
        const int code = place(torch, stream, storage, offset, end);
        if (code < 0)
            return code;
    }
    return 0;
}

int torch_stream_read(struct torch *torch, const struct source *source, uint64_t *offset,
                      uint64_t end, struct torch_stream *stream, uint32_t *ret_root)
{
    uint32_t id, keys;
    int64_t number;
    int code;
    stream->source = source;
    if ((code = torch_read_pickle(torch, source, offset, end, &id)) < 0)
        return code;
    if (!torch_stream_is_magic(torch->graph, id))
        return wfs_fail(torch->err, EBADMSG,
                        "the legacy stream does not begin with its magic number");
    if ((code = torch_read_pickle(torch, source, offset, end, &id)) < 0)
        return code;
    if (!torch_integer(torch->graph, id, &number) || number != PROTOCOL)
        return wfs_fail(torch->err, EOPNOTSUPP, "the version of the legacy stream is not %d",
                        PROTOCOL);
    /* The facts about the machine do not matter: the bytes are little-endian in any case. */
    if ((code = torch_read_pickle(torch, source, offset, end, &id)) < 0)
        return code;
    const uint32_t first = torch->graph->n_values + 1;
    if ((code = torch_read_pickle(torch, source, offset, end, ret_root)) < 0 ||
        (code = collect(torch, stream, first)) < 0 ||
        (code = torch_read_pickle(torch, source, offset, end, &keys)) < 0)
        return code;
    return place_all(torch, stream, keys, offset, end);
}

int torch_stream_find(struct torch *torch, const struct torch_storage_id *id,
                      struct torch_storage *ret)
{
    const struct torch_stream *stream = torch->container;
    const struct torch_stream_storage *storage = find_storage(stream, id->key, id->n_key);
    if (storage == NULL || !storage->is_listed) {
        ret->trouble = torch_print(torch, "storage %s is not in the file",
                                   wfs_quote_n(id->key, id->n_key).text);
        return 0;
    }
    ret->source = stream->source;
    ret->offset = storage->offset;
    ret->n_bytes = storage->n_bytes;
    ret->trouble = storage->trouble;
    torch_storage_fit(torch, id, ret);
    return 0;
}
