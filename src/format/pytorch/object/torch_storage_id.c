/* SPDX-License-Identifier: MIT */
/*
 * The id of a storage is the tuple ('storage', class, key, location, number of elements[, view]) of
 * a persistent value.
 */
#include "format/pytorch/object/torch_storage_id.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_global.h"

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
