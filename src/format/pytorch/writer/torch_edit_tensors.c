/* SPDX-License-Identifier: MIT */
/*
 * Tensors that differ from the pickle: the call that makes one gets another storage, shape and
 * dtype, and keeps everything around it. When only bytes have changed, the storage gets them and
 * the pickle stays.
 */
#include "format/pytorch/writer/torch_edit.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/core/layout.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_storage.h"

/* The call that makes a tensor of a storage, inside of calls that wrap it. */
struct maker {
    uint32_t call;  /* 0: none */
    uint32_t args;  /* the tuple that begins with storage, offset, size, stride */
    uint32_t outer; /* the tuple whose first item is the function; 0: the call has it */
    enum torch_what what;
    const struct catalog_storage *storage; /* without a call: the value itself; NULL: neither */
};

static struct maker find_maker(const struct torch_plan *plan, uint32_t id)
{
    const struct graph *graph = &plan->graph;
    const struct maker none = {.storage = torch_plan_storage(plan, id)};
    for (unsigned depth = 0; id != 0 && depth < 32; depth++) {
        const struct value *value = graph_at(graph, id);
        const uint32_t args = value->kind == VALUE_CALL ? value->call.args : 0;
        struct maker maker = {.call = id, .args = args, .what = torch_what_of(graph, value)};
        if (maker.what == WHAT_REBUILD_TYPE) {
            const struct torch_global *inner = torch_global_of(graph, torch_arg(graph, args, 0));
            maker.args = torch_arg(graph, args, 2);
            maker.outer = args;
            maker.what = inner == NULL ? WHAT_UNKNOWN : inner->what;
        }
        const uint32_t first = torch_arg(graph, maker.args, 0);
        maker.storage = first == 0 ? NULL : torch_plan_storage(plan, first);
        if ((maker.what >= WHAT_REBUILD_TENSOR && maker.what <= WHAT_REBUILD_TENSOR_V3) ||
            maker.what == WHAT_REBUILD_QTENSOR)
            return maker;
        if (maker.what != WHAT_REBUILD_PARAMETER && maker.what != WHAT_REBUILD_PARAMETER_STATE &&
            maker.what != WHAT_PARAMETER && maker.what != WHAT_REBUILD_FROM_TENSOR)
            return none;
        id = first;
    }
    return none;
}

enum torch_what torch_edit_maker(const struct torch_plan *plan, uint32_t id)
{
    return find_maker(plan, id).what;
}

static bool is_dense_in(const struct graph *graph, const struct maker *maker,
                        const struct wfs_tensor *tensor)
{
    const uint32_t size = torch_arg(graph, maker->args, 2),
                   stride = torch_arg(graph, maker->args, 3);
    const uint32_t rank = tensor->shape.rank;
    int64_t offset, dim, step;
    uint64_t expected = 1;
    if (!torch_integer(graph, torch_arg(graph, maker->args, 1), &offset) || offset != 0 ||
        torch_n_args(graph, size) != rank || torch_n_args(graph, stride) != rank)
        return false;
    for (uint32_t i = rank; i-- > 0;) {
        if (!torch_integer(graph, torch_arg(graph, size, i), &dim) ||
            !torch_integer(graph, torch_arg(graph, stride, i), &step) ||
            (uint64_t)dim != tensor->shape.dims[i] || (dim != 1 && (uint64_t)step != expected))
            return false;
        expected *= (uint64_t)dim;
    }
    return true;
}

/* Returns whether the place is a storage itself, not a tensor that is a view of one. */
static bool is_bare(const struct maker *maker)
{
    return maker->call == 0 && maker->storage != NULL;
}

/* Returns whether a bare storage keeps its class when it becomes the tensor. */
static bool keeps_class(const struct catalog_storage *storage, const struct wfs_tensor *tensor)
{
    const bool is_packed = wfs_dtype_bits((enum wfs_dtype)storage->dtype) < 8;
    return tensor->shape.rank == 1 && tensor->dtype == (is_packed ? WFS_U8 : storage->dtype);
}

/* Returns whether the tensor can be stored by giving the storage its bytes, with the same shape
 * and dtype. */
static bool fills_storage(const struct torch_plan *plan, const struct maker *maker,
                          const struct wfs_tensor *tensor)
{
    const struct graph *graph = &plan->graph;
    const struct catalog_storage *storage = maker->storage;
    if (storage == NULL || tensor->n_bytes != storage->n_bytes || tensor->n_bytes == 0)
        return false;
    if (is_bare(maker))
        return keeps_class(storage, tensor);
    if (!is_dense_in(graph, maker, tensor))
        return false;
    if (maker->what == WHAT_REBUILD_TENSOR_V3) {
        const struct torch_global *dtype = torch_global_of(graph, torch_arg(graph, maker->args, 6));
        return torch_n_args(graph, maker->args) == 7 && dtype != NULL &&
               dtype->what == WHAT_DTYPE && dtype->dtype == tensor->dtype &&
               tensor->dtype != WFS_F4;
    }
    return torch_n_args(graph, maker->args) <= (maker->what == WHAT_REBUILD_QTENSOR ? 7 : 6) &&
           !storage->is_untyped && storage->dtype == tensor->dtype;
}

/* Sets the arguments after the view: the loaded ones, and a dtype when the function takes one. */
static int set_args(struct torch_plan *plan, const struct maker *maker, uint32_t call)
{
    struct graph *graph = &plan->graph;
    const uint32_t made = graph_at(graph, call)->call.args;
    const uint32_t n_old = torch_n_args(graph, maker->args);
    uint32_t args[8], n = 4;
    for (uint32_t i = 0; i < 4; i++)
        args[i] = torch_arg(graph, made, i);
    if (maker->what == WHAT_REBUILD_QTENSOR) {
        for (; n < n_old && n < 7; n++)
            args[n] = torch_arg(graph, maker->args, n);
    } else {
        for (; n < torch_n_args(graph, made); n++) {
            const bool is_kept = n < 6 && n < n_old;
            args[n] = torch_arg(graph, is_kept ? maker->args : made, n);
        }
    }
    const uint32_t tuple = value_new_items(graph, VALUE_TUPLE, args, n);
    return torch_plan_become(plan, maker->args, tuple);
}

static int set_function(struct torch_plan *plan, const struct maker *maker, uint32_t function)
{
    if (maker->what == WHAT_REBUILD_QTENSOR)
        return 0;
    if (maker->outer == 0) {
        struct value *own = torch_plan_own(plan, maker->call);
        if (own == NULL)
            return -ENOMEM;
        own->call.callable = function;
        return 0;
    }
    const struct value *outer = graph_at(&plan->graph, maker->outer);
    uint32_t items[5], n = outer->n < 5 ? outer->n : 5;
    memcpy(items, value_items(outer), n * sizeof(*items));
    items[0] = function;
    const uint32_t tuple = value_new_items(&plan->graph, VALUE_TUPLE, items, n);
    return torch_plan_become(plan, maker->outer, tuple);
}

/* Changes the call that makes the tensor, or makes a new one. */
static int rewrite(struct torch_plan *plan, uint32_t id, const struct maker *maker,
                   const struct wfs_tensor *tensor, bool is_sole, uint32_t *ret)
{
    const struct catalog_storage *storage = maker->storage;
    const bool is_quantized = maker->what == WHAT_REBUILD_QTENSOR;
    if (is_quantized && (storage == NULL || storage->dtype != tensor->dtype || !is_sole))
        return wfs_fail(plan->err, EOPNOTSUPP, "tensor '%s' is quantized: its dtype cannot change",
                        wfs_quote(tensor->key).text);
    int code = storable_check_tensor(plan->layout->format, tensor, plan->err);
    if (code < 0)
        return code;
    const struct torch_record *record = is_quantized ? torch_record_of(plan, storage) : NULL;
    if (is_quantized && record == NULL)
        return -ENOMEM;
    const uint32_t call = torch_record_call(plan, tensor, record == NULL ? 0 : record->class);
    *ret = is_sole ? id : call;
    if (!is_sole || call == 0)
        return call == 0 ? -ENOMEM : 0;
    if (maker->call == 0)
        return torch_plan_become(plan, id, call);
    const uint32_t function = graph_at(&plan->graph, call)->call.callable;
    code = set_args(plan, maker, call);
    return code < 0 ? code : set_function(plan, maker, function);
}

static const struct wfs_tensor *tensor_at(const struct torch_edit *edit, uint32_t i)
{
    const struct edit_node *node = &edit->nodes[i];
    return node->kind == PLACE_TENSOR && node->claim != 0
               ? wfs_catalog_tensor(edit->catalog, node->claim - 1)
               : NULL;
}

/* Returns whether it differs from the loaded one: always in a tar, whose tensors a zip cannot name
 * by numbers, and where bytes are swapped, but only the tensor knows the size of the elements. */
static bool is_new(const struct torch_edit *edit, uint32_t i, const struct maker *maker)
{
    const struct graph *graph = &edit->plan->graph;
    const struct catalog_storage *storage = maker->storage;
    const uint32_t id = edit->places[i].id;
    return catalog_stamp(tensor_at(edit, i)) != edit->places[i].stamp ||
           (graph_at(graph, id)->kind == VALUE_PERSISTENT && !torch_is_storage(graph, id)) ||
           (storage != NULL && !is_bare(maker) && storage->is_untyped && storage->is_big_endian);
}

/* By value, of those that there were before tensors were changed. */
struct stamps {
    uint64_t *of; /* UINT64_MAX: no tensor; 0: tensors that differ */
    size_t n;
};

/*
 * Collects the stamps of tensors by the values that an edit of them changes: what is in their
 * place, the call that makes them and its arguments.
 */
static void collect_stamps(const struct torch_edit *edit, const struct stamps *stamps)
{
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        const struct wfs_tensor *tensor = tensor_at(edit, i);
        if (tensor == NULL)
            continue;
        const struct maker maker = find_maker(edit->plan, edit->places[i].id);
        const uint32_t values[] = {edit->places[i].id, maker.call, maker.args};
        const uint64_t stamp = catalog_stamp(tensor) | 1;
        for (size_t k = 0; k < sizeof(values) / sizeof(*values); k++) {
            uint64_t *known = &stamps->of[values[k]];
            if (values[k] != 0)
                *known = *known == UINT64_MAX || *known == stamp ? stamp : 0;
        }
    }
}

/* Returns whether tensors that shared a value when loaded have become different ones. */
static bool is_divided(const struct stamps *stamps, uint32_t id, const struct maker *maker)
{
    const uint32_t values[] = {id, maker->call, maker->args};
    bool is_one = false;
    for (size_t k = 0; k < sizeof(values) / sizeof(*values); k++)
        is_one |= values[k] < stamps->n && stamps->of[values[k]] == 0;
    return is_one;
}

/* Counts the shown bytes of each record, and its users that need other bytes, the same for all. */
static int count_users(struct torch_edit *edit, const struct stamps *stamps)
{
    autofree bool *is_counted = calloc(stamps->n, sizeof(*is_counted));
    if (is_counted == NULL)
        return -ENOMEM;
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        const struct wfs_tensor *tensor = tensor_at(edit, i);
        if (tensor == NULL)
            continue;
        const uint32_t id = edit->places[i].id;
        const struct maker maker = find_maker(edit->plan, id);
        struct torch_record *record =
            maker.storage == NULL ? NULL : torch_record_of(edit->plan, maker.storage);
        if (maker.storage != NULL && record == NULL)
            return -ENOMEM;
        bool *is_known = &is_counted[maker.args != 0 ? maker.args : id];
        if (record == NULL || *is_known)
            continue;
        *is_known = true;
        if (!is_new(edit, i, &maker)) {
            record->n_shown += tensor->n_bytes;
            continue;
        }
        if (is_divided(stamps, id, &maker) || !fills_storage(edit->plan, &maker, tensor))
            continue;
        if (record->wanted == NULL)
            record->wanted = tensor;
        if (catalog_stamp(record->wanted) == catalog_stamp(tensor))
            record->n_wanting++;
    }
    return 0;
}

/* Counts how often the graph names each storage, as an item of a tuple or of another container. */
static int count_uses(struct torch_plan *plan)
{
    const struct graph *graph = &plan->graph;
    for (uint32_t id = 1; id <= plan->catalog->values.graph.n_values; id++) {
        const struct value *value = graph_at(graph, id);
        for (uint32_t i = 0; value_has_items(value) && i < value->n; i++) {
            const uint32_t item = value_items(value)[i];
            const unsigned kind = graph_at(graph, item)->kind;
            const struct catalog_storage *storage = kind == VALUE_PERSISTENT || kind == VALUE_CALL
                                                        ? torch_plan_storage(plan, item)
                                                        : NULL;
            struct torch_record *record = storage == NULL ? NULL : torch_record_of(plan, storage);
            if (storage != NULL && record == NULL)
                return -ENOMEM;
            if (record != NULL)
                record->n_uses++;
        }
    }
    return 0;
}

/* Replaces a bare storage: by another storage, or by a tensor where a storage cannot have its dtype
 * or shape. Tensors that were views of it keep the old one. */
static int replace_storage(struct torch_edit *edit, uint32_t i,
                           const struct catalog_storage *storage)
{
    struct torch_plan *plan = edit->plan;
    const struct wfs_tensor *tensor = tensor_at(edit, i);
    const bool is_kept = keeps_class(storage, tensor);
    const int code = is_kept ? 0 : storable_check_tensor(plan->layout->format, tensor, plan->err);
    if (code < 0)
        return code;
    const struct torch_record *record = is_kept ? torch_record_of(plan, storage) : NULL;
    if (is_kept && record == NULL)
        return -ENOMEM;
    const bool is_storage =
        is_kept || (tensor->shape.rank == 1 &&
                    torch_spelling_of((enum wfs_dtype)tensor->dtype)->class != NULL);
    edit->nodes[i].id = is_storage ? torch_record_storage(plan, tensor, is_kept ? record->class : 0)
                                   : torch_record_call(plan, tensor, 0);
    return edit->nodes[i].id == 0 ? -ENOMEM : 0;
}

static bool is_wasteful(const struct torch_record *record)
{
    enum { N_SMALL = 4096 };
    return record->content->n_bytes > N_SMALL && record->n_shown < record->content->n_bytes / 2;
}

/* Changes a tensor that was loaded, if it has to be: its record, its call, or both. */
static int change(struct torch_edit *edit, uint32_t i, const struct stamps *stamps)
{
    struct torch_plan *plan = edit->plan;
    const uint32_t id = edit->places[i].id, first = torch_edit_first(edit, i);
    const struct wfs_tensor *tensor = tensor_at(edit, i);
    const struct maker maker = find_maker(plan, id);
    const bool is_own = !is_divided(stamps, id, &maker);
    struct torch_record *record =
        maker.storage == NULL ? NULL : torch_record_of(plan, maker.storage);
    if (maker.storage != NULL && record == NULL)
        return -ENOMEM;
    if (is_own && first != i) {
        edit->nodes[i].id = edit->nodes[first].id;
        return 0;
    }
    if (is_new(edit, i, &maker)) {
        if (record != NULL && is_own && torch_record_twin(plan, record, tensor) == NULL &&
            record->n_wanting == record->n_uses && !record->is_held &&
            fills_storage(plan, &maker, tensor))
            return torch_record_fill(plan, record, record->wanted);
    } else if (record == NULL || maker.call == 0 || maker.what == WHAT_REBUILD_QTENSOR || !is_own ||
               tensor->n_bytes == 0 || !is_wasteful(record)) {
        return 0;
    }
    return is_bare(&maker) ? replace_storage(edit, i, maker.storage)
                           : rewrite(plan, id, &maker, tensor, is_own, &edit->nodes[i].id);
}

/*
 * A parameter can be an attribute of its module too (as in an LSTM), which is not listed: once it
 * is removed, that is None.
 */
static int forget_removed(struct torch_edit *edit)
{
    autofree bool *is_kept = calloc((size_t)edit->n_places + 1, sizeof(*is_kept));
    if (is_kept == NULL)
        return -ENOMEM;
    for (uint32_t i = 1; i <= edit->n_places; i++)
        if (tensor_at(edit, i) != NULL)
            is_kept[torch_edit_first(edit, i)] = true;
    for (uint32_t i = 1; i <= edit->n_places; i++) {
        const uint32_t id = edit->places[i].id;
        if (edit->nodes[i].kind != PLACE_TENSOR || is_kept[torch_edit_first(edit, i)] ||
            (graph_at(&edit->plan->graph, id)->marks & MARK_OWNED) == 0)
            continue;
        struct value *own = torch_plan_own(edit->plan, id);
        if (own == NULL)
            return -ENOMEM;
        *own = (struct value){.kind = VALUE_NONE};
    }
    return 0;
}

int torch_edit_tensors(struct torch_edit *edit)
{
    const size_t n_values = (size_t)edit->plan->graph.n_values + 1;
    autofree uint64_t *of = malloc(n_values * sizeof(*of));
    const struct stamps stamps = {of, n_values};
    if (of == NULL)
        return -ENOMEM;
    memset(of, 0xff, n_values * sizeof(*of));
    collect_stamps(edit, &stamps);
    for (uint32_t i = 1; i <= edit->n_places; i++)
        edit->nodes[i].id = edit->nodes[i].kind == PLACE_VALUE && edit->nodes[i].claim != 0
                                ? edit->nodes[i].id
                                : edit->places[i].id;
    int code = count_uses(edit->plan);
    if (code == 0)
        code = count_users(edit, &stamps);
    for (uint32_t i = 1; i <= edit->n_nodes && code == 0; i++) {
        const struct wfs_tensor *tensor = tensor_at(edit, i);
        if (tensor == NULL)
            continue;
        if (i <= edit->n_places) {
            code = change(edit, i, &stamps);
            continue;
        }
        code = storable_check_tensor(edit->plan->layout->format, tensor, edit->plan->err);
        edit->nodes[i].id = code < 0 ? 0 : torch_record_call(edit->plan, tensor, 0);
        code = code == 0 && edit->nodes[i].id == 0 ? -ENOMEM : code;
    }
    return code < 0 ? code : forget_removed(edit);
}
