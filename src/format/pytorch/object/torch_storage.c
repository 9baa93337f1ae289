/* SPDX-License-Identifier: MIT */
/*
 * A storage is named by an id, for which the container finds the bytes, or is a whole stream in a
 * byte string. Byte strings have no opcode in old protocols, which write a text, or a call that
 * encodes one.
 *
 * A stream is a row of pickles: a magic number, 1001, facts about the machine, the object, the keys
 * of the storages. Then, for each key, an i64 number of elements and the elements. Only the object
 * declares the size of an element, by the class that it names with the key.
 */
#include "format/pytorch/object/torch_storage.h"

#include <weightfs/array.h>
#include "archive/derived.h"
#include "base/bytes.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_dangers.h"
#include "value/value_leaf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_of(const void *ctx, uint32_t i)
{
    const struct torch_cache *cache = ctx;
    return cache->entries[i].id == cache->wanted;
}

static uint64_t hash_id(uint32_t id)
{
    return hash_bytes(&id, sizeof(id), hash_seed());
}

/* Returns the entry of a value; NULL: none yet. */
static const struct torch_cache_entry *find_cached(struct torch *torch, uint32_t id)
{
    struct torch_cache *cache = &torch->cache;
    uint32_t i;
    cache->wanted = id;
    return map_find(&cache->map, hash_id(id), is_of, cache, &i) ? &cache->entries[i] : NULL;
}

static int keep_cached(struct torch *torch, const struct torch_cache_entry *entry)
{
    struct torch_cache *cache = &torch->cache;
    if (array_reserve(&cache->entries, sizeof(*cache->entries), cache->n_entries, 1,
                      &cache->n_room) < 0 ||
        map_add(&cache->map, hash_id(entry->id), cache->n_entries) < 0)
        return wfs_fail_memory(torch->err);
    cache->entries[cache->n_entries++] = *entry;
    return 0;
}

void torch_cache_done(struct torch *torch)
{
    free(torch->cache.entries);
    map_done(&torch->cache.map);
    torch->cache = (struct torch_cache){0};
}

/* Decodes a text that stands for bytes. */
static int decode_text(struct torch *torch, uint32_t id, struct value_bytes *ret)
{
    const struct value *text = graph_at(torch->graph, id);
    struct source *derived = NULL;
    if (text->kind != VALUE_TEXT)
        return 0;
    autofree uint8_t *buf = malloc((size_t)text->n + 1);
    if (buf == NULL)
        return wfs_fail_memory(torch->err);
    const int64_t n = value_latin1_bytes(text, buf);
    if (n < 0)
        return 0;
    int code = torch_derived(torch, &derived);
    if (code < 0)
        return code;
    code = derived_add_memory(derived, steal(&buf), (size_t)n, &ret->offset);
    if (code < 0)
        return torch_fail_derived(torch->err, code);
    ret->source = derived;
    ret->n_bytes = (uint64_t)n;
    return 1;
}

/* Makes what the value stands for, once. */
static int make_once(struct torch *torch, uint32_t id, struct value_bytes *ret,
                     int (*make)(struct torch *torch, uint32_t id, struct value_bytes *ret))
{
    const struct torch_cache_entry *known = find_cached(torch, id);
    if (known != NULL) {
        *ret = known->bytes;
        return known->is_good;
    }
    const int code = make(torch, id, ret);
    const struct torch_cache_entry entry = {.id = id, .is_good = code == 1, .bytes = *ret};
    return code < 0 || keep_cached(torch, &entry) == 0 ? code : -ENOMEM;
}

/*
 * Decodes a text for a call. A long one is decoded once, however many calls take it. Python has one
 * object for equal texts of a character, and what is made of them is not the same.
 */
static int text_bytes(struct torch *torch, uint32_t id, struct value_bytes *ret)
{
    enum { LONG = 1024 };
    return graph_at(torch->graph, id)->n >= LONG ? make_once(torch, id, ret, decode_text)
                                                 : decode_text(torch, id, ret);
}

static int bytes_of_call(struct torch *torch, uint32_t id, struct value_bytes *ret)
{
    const struct graph *graph = torch->graph;
    const struct value *call = graph_at(graph, id);
    const uint32_t first = torch_arg(graph, call->call.args, 0);
    const enum torch_what what = torch_what_of(graph, call);
    if ((what == WHAT_BYTES || what == WHAT_BYTEARRAY) && first == 0) {
        *ret = (struct value_bytes){torch->source, 0, 0};
        return 1;
    }
    const uint32_t codec = torch_arg(graph, call->call.args, 1);
    if (first == 0 || !((codec == 0 && what != WHAT_ENCODE) || torch_is_latin1(graph, codec)))
        return 0;
    if (what == WHAT_ENCODE)
        return text_bytes(torch, first, ret);
    if (what != WHAT_BYTES && what != WHAT_BYTEARRAY)
        return 0;
    if (graph_at(graph, first)->kind == VALUE_TEXT)
        return text_bytes(torch, first, ret);
    /* bytearray(_codecs.encode(text, 'latin1')) is one level deeper; more levels are not
     * followed. */
    const struct value *inner = graph_at(graph, first);
    if (inner->kind == VALUE_CALL && torch_what_of(graph, inner) != WHAT_ENCODE)
        return 0;
    return torch_bytes_of(torch, first, ret);
}

int torch_bytes_of(struct torch *torch, uint32_t id, struct value_bytes *ret)
{
    if (id == 0)
        return 0;
    const struct value *value = graph_at(torch->graph, id);
    if (value->kind == VALUE_BYTES) {
        *ret = *value->bytes;
        return 1;
    }
    if (value->kind == VALUE_TEXT)
        return make_once(torch, id, ret, decode_text);
    return value->kind == VALUE_CALL ? make_once(torch, id, ret, bytes_of_call) : 0;
}

bool torch_is_storage(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    return value->kind == VALUE_PERSISTENT &&
           value_is_text(graph, torch_arg(graph, value->id, 0), "storage");
}

uint64_t torch_storage_item(const struct torch_global *class)
{
    const unsigned bits = wfs_dtype_bits(class->dtype);
    return bits < 8 ? 1 : bits / 8;
}

static bool storage_bytes(const struct torch_global *class, int64_t n, uint64_t *ret)
{
    return n >= 0 && checked_mul((uint64_t)n, torch_storage_item(class), ret);
}

/* Parses None, or (key, offset, number of elements). */
static bool parse_view(const struct graph *graph, uint32_t view, struct torch_storage_id *ret)
{
    int64_t offset, n;
    ret->view_offset = 0;
    ret->view_bytes = UINT64_MAX;
    if (view == 0 || graph_at(graph, view)->kind == VALUE_NONE)
        return true;
    return torch_integer(graph, torch_arg(graph, view, 1), &offset) &&
           torch_integer(graph, torch_arg(graph, view, 2), &n) &&
           storage_bytes(ret->class, offset, &ret->view_offset) &&
           storage_bytes(ret->class, n, &ret->view_bytes);
}

static bool parse_key(const struct graph *graph, uint32_t id, struct torch_storage_id *ret)
{
    int64_t number;
    if (id != 0 && graph_at(graph, id)->kind == VALUE_TEXT) {
        ret->key = graph_at(graph, id)->text;
        ret->n_key = graph_at(graph, id)->n;
        return true;
    }
    if (!torch_integer(graph, id, &number))
        return false;
    ret->n_key = (size_t)snprintf(ret->number, sizeof(ret->number), "%lld", (long long)number);
    ret->key = ret->number;
    return true;
}

static const char *describe_class(struct torch *torch, uint32_t id)
{
    const struct value *value = id == 0 ? NULL : graph_at(torch->graph, id);
    if (value == NULL || value->kind != VALUE_GLOBAL)
        return "the storage has no class";
    return torch_print(torch, "storage class %s of module %s is not supported",
                       wfs_quote(value->global->name).text, wfs_quote(value->global->module).text);
}

bool torch_storage_id_parse(struct torch *torch, uint32_t id, struct torch_storage_id *ret,
                            const char **ret_trouble)
{
    const struct graph *graph = torch->graph;
    const struct value *value = graph_at(graph, id);
    const uint32_t tuple = value->kind == VALUE_PERSISTENT ? value->id : 0;
    int64_t n;
    *ret_trouble = "its storage is not described by a tuple of five or six items";
    ret->value = id;
    ret->n_items = torch_n_args(graph, tuple);
    if (ret->n_items < 5 || ret->n_items > 6 || !torch_is_storage(graph, id))
        return false;
    ret->class = torch_global_of(graph, torch_arg(graph, tuple, 1));
    if (ret->class == NULL ||
        (ret->class->what != WHAT_STORAGE && ret->class->what != WHAT_UNTYPED_STORAGE)) {
        *ret_trouble = describe_class(torch, torch_arg(graph, tuple, 1));
        return false;
    }
    ret->is_meta = value_is_text(graph, torch_arg(graph, tuple, 3), "meta");
    *ret_trouble = "the key of its storage is neither a string nor an integer";
    if (!parse_key(graph, torch_arg(graph, tuple, 2), ret))
        return false;
    *ret_trouble = "the number of elements of its storage is not an integer from 0 to 2^63-1";
    if (!torch_integer(graph, torch_arg(graph, tuple, 4), &n) ||
        !storage_bytes(ret->class, n, &ret->n_bytes))
        return false;
    *ret_trouble = "its storage is a view that is not described by a key and two integers";
    return parse_view(graph, torch_arg(graph, tuple, 5), ret);
}

void torch_storage_fit(struct torch *torch, const struct torch_storage_id *id,
                       struct torch_storage *ret)
{
    uint64_t end;
    if (ret->trouble != NULL)
        return;
    if (ret->n_bytes < id->n_bytes) {
        ret->trouble = torch_print(
            torch, "storage %s has %s, %llu expected", wfs_quote_n(id->key, id->n_key).text,
            wfs_count(ret->n_bytes, "byte").text, (unsigned long long)id->n_bytes);
        return;
    }
    torch->n_long += ret->n_bytes > id->n_bytes;
    if (id->view_bytes == UINT64_MAX)
        return;
    if (!checked_add(id->view_offset, id->view_bytes, &end) || end > ret->n_bytes) {
        ret->trouble = torch_print(torch, "a view of storage %s ends at byte %llu, but it has %llu",
                                   wfs_quote_n(id->key, id->n_key).text, (unsigned long long)end,
                                   (unsigned long long)ret->n_bytes);
        return;
    }
    ret->offset += id->view_offset;
    ret->n_bytes = id->view_bytes;
}

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
    text_index_done(&stream->keys);
    *stream = (struct torch_stream){0};
}

static struct torch_stream_storage *find_storage(const struct torch_stream *stream, const char *key,
                                                 size_t n_key)
{
    const uint32_t i = text_index_find(&stream->keys, key, n_key);
    return i == TEXT_INDEX_NONE ? NULL : &stream->storages[i];
}

static int add_storage(struct torch_stream *stream, struct graph *graph,
                       const struct torch_storage_id *id)
{
    const char *key =
        id->key == id->number ? arena_copy(graph->arena, id->key, id->n_key) : id->key;
    uint32_t i;
    if (key == NULL ||
        array_reserve(&stream->storages, sizeof(*stream->storages), stream->keys.n_texts, 1,
                      &stream->n_room) < 0 ||
        text_index_add(&stream->keys, key, id->n_key, &i) < 0)
        return -ENOMEM;
    stream->storages[i] = (struct torch_stream_storage){
        .key = key, .n_key = id->n_key, .class = id->class, .n_declared = id->n_bytes};
    return 0;
}

/* Collects all storages that the object names. Its values begin at first. */
static int collect_storages(struct torch *torch, struct torch_stream *stream, uint32_t first)
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
static int spoil_storage(struct torch *torch, struct torch_stream_storage *storage,
                         const char *text)
{
    storage->trouble = text;
    return torch->is_forced ? 0 : wfs_fail(torch->err, EBADMSG, "%s", text);
}

/* Reads the header of the storage at *offset, and moves to the next one. */
static int place_storage(struct torch *torch, struct torch_stream *stream,
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
        return spoil_storage(torch, storage,
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
        return spoil_storage(torch, storage,
                             torch_print(torch, "the file ends %s before storage %s does",
                                         wfs_count((n_bytes - n_left), "byte").text, key.text));
    }
    *offset += n_bytes;
    return 0;
}

static int place_storages(struct torch *torch, struct torch_stream *stream, uint32_t keys,
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
        const int code = place_storage(torch, stream, storage, offset, end);
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
        (code = collect_storages(torch, stream, first)) < 0 ||
        (code = torch_read_pickle(torch, source, offset, end, &keys)) < 0)
        return code;
    return place_storages(torch, stream, keys, offset, end);
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
    torch_dangers_add(&inner);
    torch->budget = inner.budget;
    torch->has_failed = inner.has_failed;
    torch->n_long = inner.n_long;
    torch_cache_done(&inner);
    if (code == -ENOMEM && arena.is_full) {
        err = (struct wfs_error){0};
        code = wfs_fail(&err, E2BIG, "it takes more memory than the limit (limit index_memory)");
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
    const struct torch_cache_entry *known = find_cached(torch, id);
    const struct value *call = graph_at(torch->graph, id);
    struct value_bytes bytes;
    if (known != NULL) {
        *ret = known->storage;
        return 1;
    }
    *ret = (struct torch_storage){.dtype = WFS_U8};
    int code = torch_bytes_of(torch, torch_arg(torch->graph, call->call.args, 0), &bytes);
    if (code < 0)
        return code;
    if (code == 0)
        ret->trouble = "the stream of its storage is not made of bytes";
    else if (torch->depth >= MAX_STREAM_DEPTH)
        ret->trouble = "its storage is a stream in a stream in a stream";
    else if ((code = storage_of_stream(torch, &bytes, ret)) < 0)
        return code;
    const struct torch_cache_entry entry = {.id = id, .is_good = true, .storage = *ret};
    if (keep_cached(torch, &entry) < 0)
        return -ENOMEM;
    /* What is not a stream for us may be one for Python, with any pickle in it. */
    const struct value *function = graph_at(torch->graph, call->call.callable);
    if (ret->trouble != NULL && function->kind == VALUE_GLOBAL)
        torch_dangers_note(torch, function->global);
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

static int describe_storage(struct torch *torch, uint32_t id, struct catalog_storage *ret)
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
    catalog->own->storages = arena_calloc(&catalog->arena, n, sizeof(*catalog->own->storages));
    if (catalog->own->storages == NULL)
        return wfs_fail_memory(torch->err);
    for (uint32_t id = 1; id <= n_values && catalog->own->n_storages < n; id++) {
        if (!is_storage(torch, id))
            continue;
        const int code =
            describe_storage(torch, id, &catalog->own->storages[catalog->own->n_storages]);
        if (code < 0)
            return code;
        catalog->own->n_storages += code == 1;
    }
    /* A pickle that breaks rules of torch cannot be copied unchanged. */
    if (torch->n_mixed > 0 || torch->is_big_endian || catalog->own->n_storages < n ||
        (torch->notes & (PICKLE_TEXT_ID | PICKLE_LATIN1)) != 0)
        catalog->values.pickle.source = NULL;
    catalog->values.is_object = true;
    return 0;
}

static int by_id(const void *id, const void *storage)
{
    const uint32_t x = *(const uint32_t *)id, y = ((const struct catalog_storage *)storage)->id;
    return (x > y) - (x < y);
}

const struct catalog_storage *torch_storage_at(const struct wfs_catalog *catalog, uint32_t id)
{
    return catalog->own->n_storages == 0
               ? NULL
               : bsearch(&id, catalog->own->storages, catalog->own->n_storages,
                         sizeof(*catalog->own->storages), by_id);
}
