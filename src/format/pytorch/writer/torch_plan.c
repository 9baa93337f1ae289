/* SPDX-License-Identifier: MIT */
/*
 * Values that all parts of a plan share, the spelling of tensors, and records. Dtypes that PyTorch
 * added late have no storage class. Tensors that show the same bytes get one record, so they stay
 * tied; one that was loaded as a view of the elements of another in another order stays a view of
 * its record.
 */
#include "format/pytorch/writer/torch_plan.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_storage.h"

/* Returns a value that many others share, which is created at its first use, and numbered for the
 * memo: a global, or without a module a text. slot is a field of the plan. 0 without memory. */
static uint32_t share(struct torch_plan *plan, uint32_t *slot, const char *module, const char *name)
{
    if (*slot != 0)
        return *slot;
    *slot = module == NULL
                ? value_new_text(&plan->graph, name, strlen(name))
                : value_new_global(&plan->graph, module, strlen(module), name, strlen(name));
    if (*slot != 0)
        plan->first[plan->n_first++] = *slot;
    return *slot;
}

uint32_t torch_plan_dict(struct torch_plan *plan)
{
    const uint32_t class = share(plan, &plan->ordered_dict, "collections", "OrderedDict");
    const uint32_t args = value_new(&plan->graph, VALUE_TUPLE);
    return class == 0 || args == 0 ? 0 : value_new_call(&plan->graph, FORM_REDUCE, class, args);
}

struct value *torch_plan_own(struct torch_plan *plan, uint32_t id)
{
    plan->is_changed = true;
    return graph_own(&plan->graph, id, plan->owned, plan->n_owned);
}

int torch_plan_become(struct torch_plan *plan, uint32_t id, uint32_t made)
{
    struct value *own = made == 0 ? NULL : torch_plan_own(plan, id);
    if (own == NULL)
        return -ENOMEM;
    *own = *graph_at(&plan->graph, made);
    return 0;
}

const struct catalog_storage *torch_plan_storage(const struct torch_plan *plan, uint32_t id)
{
    return torch_storage_at(plan->catalog, id);
}

/* ---- the spelling of tensors ---- */

#define T(id, class, dtype) [WFS_##id] = {class "Storage", dtype, 1}
#define U(id, dtype, n) [WFS_##id] = {NULL, dtype, n}

static const struct torch_spelling spellings[WFS_N_DTYPES] = {
    T(F64, "Double", "float64"),
    T(F32, "Float", "float32"),
    T(F16, "Half", "float16"),
    T(BF16, "BFloat16", "bfloat16"),
    T(I64, "Long", "int64"),
    T(I32, "Int", "int32"),
    T(I16, "Short", "int16"),
    T(I8, "Char", "int8"),
    T(U8, "Byte", "uint8"),
    T(BOOL, "Bool", "bool"),
    T(C128, "ComplexDouble", "complex128"),
    T(C64, "ComplexFloat", "complex64"),
    U(C32, "complex32", 1),
    U(BC32, "bcomplex32", 1),
    U(U16, "uint16", 1),
    U(U32, "uint32", 1),
    U(U64, "uint64", 1),
    U(F8_E4M3, "float8_e4m3fn", 1),
    U(F8_E5M2, "float8_e5m2", 1),
    U(F8_E4M3FNUZ, "float8_e4m3fnuz", 1),
    U(F8_E5M2FNUZ, "float8_e5m2fnuz", 1),
    U(F8_E8M0, "float8_e8m0fnu", 1),
    U(F4, "float4_e2m1fn_x2", 2),
    U(BITS8, "bits8", 1),
    U(BITS1X8, "bits1x8", 1),
    U(BITS2X4, "bits2x4", 1),
    U(BITS4X2, "bits4x2", 1),
    U(BITS16, "bits16", 1),
};

const struct torch_spelling *torch_spelling_of(enum wfs_dtype dtype)
{
    return spellings[dtype].dtype == NULL ? NULL : &spellings[dtype];
}

void torch_spelling_shape(const struct wfs_tensor *tensor, uint64_t *dims, uint64_t *strides)
{
    const struct torch_spelling *spelling = torch_spelling_of((enum wfs_dtype)tensor->dtype);
    const uint32_t rank = tensor->shape.rank;
    uint64_t step = 1;
    for (uint32_t i = rank; i-- > 0;) {
        dims[i] = tensor->shape.dims[i] / (i + 1 == rank ? spelling->n_per_unit : 1);
        strides[i] = step;
        if (!checked_mul(step, dims[i] > 0 ? dims[i] : 1, &step) || step > INT64_MAX)
            step = 1; /* only for a tensor without elements */
    }
}

/* ---- records ---- */

bool torch_record_stores(const struct wfs_tensor *tensor)
{
    return torch_spelling_of((enum wfs_dtype)tensor->dtype) != NULL;
}

int torch_record_check(const struct wfs_tensor *tensor, struct wfs_error *err)
{
    const struct wfs_shape *shape = &tensor->shape;
    if (tensor->dtype == WFS_F4 && (shape->rank == 0 || shape->dims[shape->rank - 1] % 2 != 0))
        return wfs_fail(err, EOPNOTSUPP,
                        "tensor '%s': PyTorch stores F4 in pairs, but its last dimension is odd",
                        wfs_quote(tensor->key).text);
    return 0;
}

static bool is_verbatim(const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    return stored->source != NULL && stored->dtype == tensor->dtype && !stored->is_conjugate &&
           !stored->is_negative &&
           (!stored->is_big_endian || wfs_dtype_bits((enum wfs_dtype)tensor->dtype) <= 8);
}

/* Sorted by stride, the dimensions must be nested without gaps. */
static bool is_permuted(const struct wfs_tensor *tensor)
{
    const uint64_t *strides = tensor->stored.strides;
    const uint32_t rank = tensor->shape.rank;
    uint64_t step = 1;
    if (!is_verbatim(tensor) || strides == NULL || rank > 16 || tensor->n_bytes == 0)
        return false;
    for (uint32_t n_left = rank; n_left > 0; n_left--) {
        uint32_t i = 0;
        while (i < rank && (tensor->shape.dims[i] == 1 || strides[i] != step))
            i++;
        if (i == rank)
            break;
        step *= tensor->shape.dims[i];
    }
    uint64_t n_elems;
    return wfs_shape_count(&tensor->shape, &n_elems) == 0 && step == n_elems;
}

/* Returns whether it is what its place was loaded with, if it has one. */
static bool is_as_loaded(const struct torch_plan *plan, const struct wfs_tensor *tensor)
{
    const struct wfs_catalog *catalog = plan->catalog;
    return catalog_place(catalog, tensor) == 0 ||
           catalog->values.places[tensor->place].stamp == catalog_stamp(tensor);
}

struct wanted {
    const struct torch_plan *plan;
    const struct wfs_tensor *tensor;
    uint32_t class;
};

static bool has_same_strides(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const size_t n_bytes = a->shape.rank * sizeof(uint64_t);
    if (a->stored.strides == NULL && b->stored.strides == NULL)
        return true;
    if (wfs_tensor_is_plain(a) && wfs_tensor_is_plain(b))
        return true;
    return a->shape.rank == b->shape.rank && a->stored.strides != NULL &&
           b->stored.strides != NULL && memcmp(a->shape.dims, b->shape.dims, n_bytes) == 0 &&
           memcmp(a->stored.strides, b->stored.strides, n_bytes) == 0;
}

/* Old files have other names for a class: by device, or with an underscore. */
static bool is_same_class(const struct graph *graph, uint32_t a, uint32_t b)
{
    const struct torch_global *x = torch_global_of(graph, a), *y = torch_global_of(graph, b);
    if (a == b)
        return true;
    return x != NULL && y != NULL &&
           (x == y || (x->what == WHAT_UNTYPED_STORAGE && y->what == WHAT_UNTYPED_STORAGE));
}

/* In an untyped storage the type of the elements does not matter, as long as they are stored as
 * shown. */
static bool is_same_type(const struct torch_plan *plan, uint32_t class, const struct wfs_tensor *a,
                         const struct wfs_tensor *b)
{
    if (a->dtype == b->dtype && a->stored.dtype == b->stored.dtype)
        return true;
    return class == plan->untyped && is_verbatim(a) && is_verbatim(b);
}

/* Returns whether both read the same bytes as the same elements. Without strides the shape does
 * not matter. */
static bool is_wanted(const void *ctx, uint32_t i)
{
    const struct wanted *wanted = ctx;
    const struct torch_record *record = &wanted->plan->records[i];
    const struct wfs_tensor *a = wanted->tensor, *b = record->content;
    const struct wfs_stored *x = &a->stored, *y = &b->stored;
    return a->n_bytes == b->n_bytes && x->source == y->source && x->offset == y->offset &&
           x->is_big_endian == y->is_big_endian && x->is_conjugate == y->is_conjugate &&
           x->is_negative == y->is_negative && has_same_strides(a, b) &&
           is_same_class(&wanted->plan->graph, wanted->class, record->class) &&
           is_same_type(wanted->plan, wanted->class, a, b);
}

static uint64_t hash_of(const struct wfs_tensor *tensor)
{
    const uint64_t facts[] = {tensor->n_bytes, tensor->stored.source->id, tensor->stored.offset};
    return hash_bytes(facts, sizeof(facts), hash_seed());
}

static bool find_record(const struct torch_plan *plan, const struct wfs_tensor *tensor,
                        uint32_t class, uint32_t *ret)
{
    const struct wanted wanted = {plan, tensor, class};
    return tensor->stored.source != NULL &&
           map_find(&plan->by_range, hash_of(tensor), is_wanted, &wanted, ret);
}

static int add_record(struct torch_plan *plan, const struct torch_record *record, uint32_t *ret)
{
    if (array_reserve(&plan->records, sizeof(*plan->records), plan->n_records, 1,
                      &plan->n_record_room) < 0)
        return -ENOMEM;
    if (record->content->stored.source != NULL &&
        map_add(&plan->by_range, hash_of(record->content), plan->n_records) < 0)
        return -ENOMEM;
    *ret = plan->n_records;
    plan->records[plan->n_records++] = *record;
    return 0;
}

const struct torch_record *torch_record_twin(const struct torch_plan *plan,
                                             const struct torch_record *record,
                                             const struct wfs_tensor *tensor)
{
    uint32_t i;
    return find_record(plan, tensor, record->class, &i) && &plan->records[i] != record
               ? &plan->records[i]
               : NULL;
}

int torch_record_fill(struct torch_plan *plan, struct torch_record *record,
                      const struct wfs_tensor *tensor)
{
    const uint32_t i = (uint32_t)(record - plan->records);
    if (record->content == tensor)
        return 0;
    record->content = tensor;
    record->has_crc = false;
    return tensor->stored.source == NULL ? 0 : map_add(&plan->by_range, hash_of(tensor), i);
}

/* Returns the class of a new storage. 0 without memory. */
static uint32_t class_of(struct torch_plan *plan, enum wfs_dtype dtype)
{
    const struct torch_spelling *spelling = torch_spelling_of(dtype);
    if (share(plan, &plan->storage, NULL, "storage") == 0)
        return 0;
    return spelling->class == NULL ? share(plan, &plan->untyped, "torch.storage", "UntypedStorage")
                                   : share(plan, &plan->classes[dtype], "torch", spelling->class);
}

const struct wfs_tensor *torch_record_range(struct torch_plan *plan, const char *key,
                                            const struct wfs_stored *stored, uint64_t n_bytes)
{
    struct wfs_tensor *tensor = arena_calloc(&plan->layout->arena, 1, sizeof(*tensor));
    uint64_t *dims = arena_calloc(&plan->layout->arena, 1, sizeof(*dims));
    if (tensor == NULL || dims == NULL)
        return NULL;
    const unsigned bits = wfs_dtype_bits((enum wfs_dtype)stored->dtype);
    dims[0] = n_bytes / (bits / 8);
    *tensor = (struct wfs_tensor){.key = key,
                                  .dtype = stored->dtype,
                                  .n_bytes = n_bytes,
                                  .shape = {1, dims},
                                  .stored = *stored};
    return tensor;
}

/* Makes a tensor of all elements of a storage, of its bytes where it does not know their size. */
static const struct wfs_tensor *content_of(struct torch_plan *plan,
                                           const struct catalog_storage *storage)
{
    const unsigned bits = wfs_dtype_bits((enum wfs_dtype)storage->dtype);
    const bool is_bytes = storage->is_untyped || bits <= 8;
    const struct wfs_stored stored = {.source = (struct source *)(uintptr_t)storage->source,
                                      .offset = storage->offset,
                                      .dtype = is_bytes && bits != 8 ? WFS_U8 : storage->dtype,
                                      .is_big_endian = storage->is_big_endian && !is_bytes};
    return torch_record_range(plan, "a storage", &stored, storage->n_bytes);
}

static int make_record(struct torch_plan *plan, const struct catalog_storage *storage,
                       struct torch_record *ret)
{
    const struct graph *graph = &plan->graph;
    const struct value *value = graph_at(graph, storage->id);
    const unsigned bits = wfs_dtype_bits((enum wfs_dtype)storage->dtype);
    *ret = (struct torch_record){.content = content_of(plan, storage),
                                 .n_units = storage->n_bytes,
                                 .crc = storage->crc,
                                 .has_crc = storage->has_crc && !storage->is_big_endian};
    if (ret->content == NULL || share(plan, &plan->storage, NULL, "storage") == 0)
        return -ENOMEM;
    if (!storage->is_untyped && bits > 8)
        ret->n_units /= bits / 8;
    if (value->kind != VALUE_PERSISTENT) {
        ret->class = class_of(plan, (enum wfs_dtype)storage->dtype);
        ret->location = share(plan, &plan->cpu, NULL, "cpu");
        return ret->class == 0 || ret->location == 0 ? -ENOMEM : 0;
    }
    const uint32_t key = torch_arg(graph, value->id, 2);
    ret->class = torch_arg(graph, value->id, 1);
    ret->location = torch_arg(graph, value->id, 3);
    if (graph_at(graph, key)->kind == VALUE_TEXT) {
        ret->key = graph_at(graph, key)->text;
        ret->n_key = graph_at(graph, key)->n;
    }
    if (ret->location == 0 || graph_at(graph, ret->location)->kind != VALUE_TEXT)
        ret->location = share(plan, &plan->cpu, NULL, "cpu");
    return ret->location == 0 ? -ENOMEM : 0;
}

struct torch_record *torch_record_of(struct torch_plan *plan, const struct catalog_storage *storage)
{
    uint32_t *slot = &plan->of_storages[storage - plan->catalog->own->storages], found;
    struct torch_record record;
    if (*slot != 0)
        return &plan->records[*slot - 1];
    if (make_record(plan, storage, &record) < 0)
        return NULL;
    if (!find_record(plan, record.content, record.class, &found) &&
        add_record(plan, &record, &found) < 0)
        return NULL;
    *slot = found + 1;
    return &plan->records[found];
}

/* ---- calls ---- */

/* What shows a tensor: a view of a record, from its first element. */
struct view {
    uint32_t record;         /* from 0 */
    const uint64_t *strides; /* NULL: dense */
};

/* Finds a record that has the bytes of the tensor, and keeps other bytes from being put there. */
static bool take_record(struct torch_plan *plan, const struct wfs_tensor *tensor, uint32_t class,
                        uint32_t *ret)
{
    if (!find_record(plan, tensor, class, ret))
        return false;
    struct torch_record *record = &plan->records[*ret];
    record->is_held |= record->content != record->wanted;
    return true;
}

/* Finds the view that shows the tensor: of a record that has its bytes already, or of a new one. */
static int find_view(struct torch_plan *plan, const struct wfs_tensor *tensor, uint32_t class,
                     struct view *ret)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    const struct torch_spelling *spelling = torch_spelling_of(dtype);
    struct torch_record record = {.content = tensor, .n_units = tensor->n_bytes};
    *ret = (struct view){0};
    record.class = class != 0 ? class : class_of(plan, dtype);
    record.location = share(plan, &plan->cpu, NULL, "cpu");
    if (record.class == 0 || record.location == 0)
        return -ENOMEM;
    if (take_record(plan, tensor, record.class, &ret->record))
        return 0;
    /* One that was transposed since is contiguous in the new file. */
    if (is_as_loaded(plan, tensor) && is_permuted(tensor)) {
        struct wfs_tensor whole = *tensor;
        whole.stored.strides = NULL;
        if (take_record(plan, &whole, record.class, &ret->record)) {
            ret->strides = tensor->stored.strides;
            return 0;
        }
    }
    if (spelling == NULL || spelling->class != NULL)
        record.n_units /= wfs_dtype_bits(dtype) / 8;
    return add_record(plan, &record, &ret->record);
}

static uint32_t storage_of(struct torch_plan *plan, const struct view *view)
{
    const uint32_t id = value_new(&plan->graph, VALUE_RECORD);
    if (id != 0)
        graph_at(&plan->graph, id)->id = view->record;
    return id;
}

uint32_t torch_record_storage(struct torch_plan *plan, const struct wfs_tensor *tensor,
                              uint32_t class)
{
    struct view view;
    return find_view(plan, tensor, class, &view) < 0 ? 0 : storage_of(plan, &view);
}

static uint32_t tuple_of(struct torch_plan *plan, const uint64_t *numbers, uint32_t n)
{
    autofree uint32_t *ids = calloc((size_t)n + 1, sizeof(*ids));
    for (uint32_t i = 0; ids != NULL && i < n; i++) {
        ids[i] = value_new_integer(&plan->graph, (int64_t)numbers[i]);
        if (ids[i] == 0)
            return 0;
    }
    return ids == NULL ? 0 : value_new_items(&plan->graph, VALUE_TUPLE, ids, n);
}

uint32_t torch_record_call(struct torch_plan *plan, const struct wfs_tensor *tensor, uint32_t class)
{
    struct graph *graph = &plan->graph;
    const struct torch_spelling *spelling = torch_spelling_of((enum wfs_dtype)tensor->dtype);
    const bool is_late = spelling->class == NULL;
    const uint32_t rank = tensor->shape.rank, n = is_late ? 7 : 6;
    autofree uint64_t *numbers = calloc(2 * (size_t)rank + 1, sizeof(*numbers));
    struct view view;
    if (numbers == NULL || find_view(plan, tensor, class, &view) < 0)
        return 0;
    torch_spelling_shape(tensor, numbers, numbers + rank);
    const uint32_t builder = share(plan, &plan->builders[is_late], "torch._utils",
                                   is_late ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    const uint32_t hooks = torch_plan_dict(plan);
    const uint32_t dtype =
        is_late ? share(plan, &plan->dtypes[tensor->dtype], "torch", spelling->dtype) : 0;
    const uint32_t args[] = {
        storage_of(plan, &view),
        value_new_integer(graph, 0),
        tuple_of(plan, numbers, rank),
        tuple_of(plan, view.strides != NULL ? view.strides : numbers + rank, rank),
        value_new(graph, VALUE_BOOL),
        hooks,
        dtype,
    };
    for (uint32_t i = 0; i < n; i++)
        if (args[i] == 0)
            return 0;
    const uint32_t tuple = value_new_items(graph, VALUE_TUPLE, args, n);
    return builder == 0 || tuple == 0 ? 0 : value_new_call(graph, FORM_REDUCE, builder, tuple);
}
