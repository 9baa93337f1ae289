/* SPDX-License-Identifier: MIT */
/*
 * Storages: what their ids say, and the streams that a pickled tensor of its own carries around.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch/legacy.h"
#include "format/pytorch/object/torch_made.h"

enum { MAX_STREAM_DEPTH = 2 };

bool torch_is_storage(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    return value->kind == VALUE_PERSISTENT &&
           value_is_text(graph, torch_arg(graph, value->id, 0), "storage");
}

/* Bytes that n elements of a storage class are; packed types are counted in bytes. */
static bool storage_bytes(const struct torch_global *class, int64_t n, uint64_t *ret)
{
    const unsigned bits = wfs_dtype_bits(class->dtype);
    return n >= 0 && checked_mul((uint64_t)n, (uint64_t)(bits < 8 ? 1 : bits / 8), ret);
}

/* None, or (key, offset, number of elements). */
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

bool torch_storage_id(struct torch *torch, uint32_t id, struct torch_storage_id *ret,
                      const char **ret_trouble)
{
    const struct graph *graph = torch->graph;
    const struct value *value = graph_at(graph, id);
    const uint32_t tuple = value->kind == VALUE_PERSISTENT ? value->id : 0;
    int64_t n;
    *ret_trouble = "its storage is not described by a tuple of five or six";
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
    *ret_trouble = "the key of its storage is no text and no integer";
    if (!parse_key(graph, torch_arg(graph, tuple, 2), ret))
        return false;
    *ret_trouble = "the number of elements of its storage is not one that fits 63 bits";
    if (!torch_integer(graph, torch_arg(graph, tuple, 4), &n) ||
        !storage_bytes(ret->class, n, &ret->n_bytes))
        return false;
    *ret_trouble = "its storage is a view that is not described by a key and two numbers";
    return parse_view(graph, torch_arg(graph, tuple, 5), ret);
}

void torch_fit(struct torch *torch, const struct torch_storage_id *id, struct torch_storage *ret)
{
    uint64_t end;
    if (ret->trouble != NULL)
        return;
    if (ret->n_bytes < id->n_bytes) {
        ret->trouble = torch_print(
            torch, "storage %s has %llu bytes, %llu expected", wfs_quote_n(id->key, id->n_key).text,
            (unsigned long long)ret->n_bytes, (unsigned long long)id->n_bytes);
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

static int storage_of_persistent(struct torch *torch, uint32_t id, struct torch_storage *ret)
{
    struct torch_storage_id storage_id;
    *ret = (struct torch_storage){.dtype = WFS_U8};
    if (!torch_storage_id(torch, id, &storage_id, &ret->trouble))
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

/* Reads a whole stream that stands for one storage. */
static int storage_of_stream(struct torch *torch, const struct value_bytes *bytes,
                             struct torch_storage *ret)
{
    cleanup(legacy_done) struct legacy legacy = {0};
    cleanup(arena_done) struct arena arena = {.limit = torch->catalog->arena.limit};
    struct graph graph = {.arena = &arena};
    struct wfs_error err = {0};
    struct torch inner = *torch;
    uint64_t offset = bytes->offset;
    uint32_t root;
    inner.graph = &graph;
    inner.err = &err;
    inner.made = (struct torch_made){0};
    inner.depth++;
    inner.find = legacy_find;
    inner.find_tensor = NULL;
    inner.container = &legacy;
    int code =
        legacy_read(&inner, bytes->source, &offset, bytes->offset + bytes->n_bytes, &legacy, &root);
    if (code == 0 && !torch_is_storage(&graph, root))
        code = wfs_fail(&err, EBADMSG, "it does not hold a storage");
    if (code == 0)
        code = torch_storage(&inner, root, ret);
    torch->budget = inner.budget;
    torch->has_failed = inner.has_failed;
    torch->n_long = inner.n_long;
    torch_made_done(&inner);
    if (code == -EBADMSG || code == -EOPNOTSUPP || code == -E2BIG) {
        *ret = (struct torch_storage){.dtype = WFS_U8};
        ret->trouble = torch_print(torch, "the stream of its storage cannot be read: %s", err.text);
        return 1;
    }
    return code < 0 ? wfs_fail(torch->err, -code, "%s", err.text) : code;
}

static int storage_of_bytes(struct torch *torch, uint32_t id, struct torch_storage *ret)
{
    struct torch_made_entry *entry = torch_made_find(torch, id);
    struct value_bytes bytes;
    if (entry != NULL) {
        *ret = entry->storage;
        return 1;
    }
    *ret = (struct torch_storage){.dtype = WFS_U8};
    int code = torch_bytes(torch, torch_arg(torch->graph, graph_at(torch->graph, id)->call.args, 0),
                           &bytes);
    if (code < 0)
        return code;
    if (code == 0)
        ret->trouble = "the stream of its storage is not made of bytes";
    else if (torch->depth >= MAX_STREAM_DEPTH)
        ret->trouble = "streams within streams within streams";
    else if ((code = storage_of_stream(torch, &bytes, ret)) < 0)
        return code;
    entry = torch_made_add(torch, id);
    if (entry == NULL)
        return wfs_fail_memory(torch->err);
    entry->is_good = true;
    entry->storage = *ret;
    return 1;
}

int torch_storage(struct torch *torch, uint32_t id, struct torch_storage *ret)
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
