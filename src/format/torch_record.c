/* SPDX-License-Identifier: MIT */
/*
 * The storages of a new checkpoint. Tensors that show the same bytes get one record, so they stay
 * tied; one that shows the elements of another's in another order is a view of its record.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch_write.h"

int torch_check_tensor(const struct wfs_tensor *tensor, struct wfs_error *err)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    const struct wfs_quoted key = wfs_quote(tensor->key);
    const struct wfs_shape *shape = &tensor->shape;
    uint64_t n_bytes;
    if (torch_spelling_of(dtype) == NULL)
        return wfs_fail(err, EOPNOTSUPP, "tensor '%s': PyTorch has no dtype %s", key.text,
                        dtype == WFS_OPAQUE ? "for what it is" : wfs_dtype_name(dtype));
    if (wfs_shape_bytes(shape, dtype, &n_bytes) < 0 || n_bytes > INT64_MAX)
        return wfs_fail(err, EINVAL,
                        "tensor '%s': its shape does not fill whole bytes of %s below 2^63",
                        key.text, wfs_dtype_name(dtype));
    if (n_bytes != tensor->n_bytes)
        return wfs_fail(err, EINVAL,
                        "tensor '%s': dtype and shape take %" PRIu64 " bytes, it has %" PRIu64,
                        key.text, n_bytes, tensor->n_bytes);
    if (dtype == WFS_F4 && (shape->rank == 0 || shape->dims[shape->rank - 1] % 2 != 0))
        return wfs_fail(err, EOPNOTSUPP,
                        "tensor '%s': PyTorch keeps F4 in pairs, and its last dimension is odd",
                        key.text);
    return 0;
}

static bool is_verbatim(const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    return stored->source != NULL && stored->dtype == tensor->dtype && !stored->is_conjugate &&
           !stored->is_negative &&
           (!stored->is_big_endian || wfs_dtype_bits((enum wfs_dtype)tensor->dtype) <= 8);
}

/* Sorted by stride, the dimensions must fit into each other without gaps. */
bool torch_is_permuted(const struct wfs_tensor *tensor)
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

struct wanted {
    const struct torch_plan *plan;
    const struct wfs_tensor *tensor;
};

static bool has_same_strides(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const size_t n_bytes = a->shape.rank * sizeof(uint64_t);
    if (wfs_tensor_is_plain(a) && wfs_tensor_is_plain(b))
        return true;
    return a->shape.rank == b->shape.rank && a->stored.strides != NULL &&
           b->stored.strides != NULL && memcmp(a->shape.dims, b->shape.dims, n_bytes) == 0 &&
           memcmp(a->stored.strides, b->stored.strides, n_bytes) == 0;
}

/* Do both read the same bytes as the same elements? Of plain ones the shape does not matter. */
static bool is_wanted(const void *ctx, uint32_t i)
{
    const struct wanted *wanted = ctx;
    const struct wfs_tensor *a = wanted->tensor, *b = wanted->plan->records[i].content;
    const struct wfs_stored *x = &a->stored, *y = &b->stored;
    return a->dtype == b->dtype && a->n_bytes == b->n_bytes && x->source == y->source &&
           x->offset == y->offset && x->dtype == y->dtype && x->is_big_endian == y->is_big_endian &&
           x->is_conjugate == y->is_conjugate && x->is_negative == y->is_negative &&
           has_same_strides(a, b);
}

static uint64_t hash_of(const struct wfs_tensor *tensor)
{
    const uint64_t facts[] = {tensor->dtype, tensor->n_bytes, tensor->stored.source->id,
                              tensor->stored.offset};
    return hash_bytes(facts, sizeof(facts), hash_seed());
}

static bool find_record(const struct torch_plan *plan, const struct wfs_tensor *tensor,
                        uint32_t *ret)
{
    const struct wanted wanted = {plan, tensor};
    return tensor->n_bytes > 0 && tensor->stored.source != NULL &&
           map_find(&plan->by_range, hash_of(tensor), is_wanted, &wanted, ret);
}

static int add_record(struct torch_plan *plan, const struct wfs_tensor *tensor, uint32_t *ret)
{
    const struct torch_spelling *spelling = torch_spelling_of((enum wfs_dtype)tensor->dtype);
    if (plan->n_records == plan->n_record_room) {
        const uint32_t n_room = plan->n_record_room == 0 ? 64 : plan->n_record_room * 2;
        struct torch_record *records = reallocarray(plan->records, n_room, sizeof(*records));
        if (records == NULL)
            return -ENOMEM;
        plan->records = records;
        plan->n_record_room = n_room;
    }
    struct torch_record record = {.content = tensor, .n_units = tensor->n_bytes};
    if (torch_plan_text(plan, &plan->storage, "storage") == 0)
        return -ENOMEM;
    if (spelling->class == NULL) {
        record.class = torch_plan_global(plan, &plan->untyped, "torch.storage", "UntypedStorage");
    } else {
        record.class =
            torch_plan_global(plan, &plan->classes[tensor->dtype], "torch", spelling->class);
        record.n_units /= wfs_dtype_bits((enum wfs_dtype)tensor->dtype) / 8;
    }
    record.location = torch_plan_text(plan, &plan->cpu, "cpu");
    if (record.class == 0 || record.location == 0)
        return -ENOMEM;
    if (tensor->n_bytes > 0 && tensor->stored.source != NULL &&
        map_add(&plan->by_range, hash_of(tensor), plan->n_records) < 0)
        return -ENOMEM;
    *ret = plan->n_records;
    plan->records[plan->n_records++] = record;
    return 0;
}

int torch_plan_view(struct torch_plan *plan, const struct wfs_tensor *tensor,
                    struct torch_view *ret)
{
    *ret = (struct torch_view){0};
    if (find_record(plan, tensor, &ret->record))
        return 0;
    if (torch_is_permuted(tensor)) {
        struct wfs_tensor whole = *tensor;
        whole.stored.strides = NULL;
        if (find_record(plan, &whole, &ret->record)) {
            ret->strides = tensor->stored.strides;
            return 0;
        }
    }
    return add_record(plan, tensor, &ret->record);
}
