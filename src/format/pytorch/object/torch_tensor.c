/* SPDX-License-Identifier: MIT */
/*
 * From size, stride and offset to a tensor of the catalog: every number is checked before it is
 * multiplied, and nothing is outside of its storage.
 */
#include "format/pytorch/object/torch_tensor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "archive/derived.h"
#include "base/bytes.h"
#include "format/pytorch/object/torch_call.h"

const char torch_tensor_absent[] = "it was saved without its data";

int torch_tensor_reserve(struct torch *torch, struct torch_tensor *tensor, uint32_t rank)
{
    if (torch->n_scratch < rank + 1) {
        uint64_t *scratch = reallocarray(torch->scratch, 2 * ((size_t)rank + 1), sizeof(*scratch));
        if (scratch == NULL)
            return wfs_fail_memory(torch->err);
        torch->scratch = scratch;
        torch->n_scratch = rank + 1;
    }
    tensor->dims = torch->scratch;
    tensor->strides = torch->scratch + torch->n_scratch;
    return 0;
}

static const char *read_numbers(struct torch *torch, uint32_t tuple, uint64_t *numbers,
                                const char *what)
{
    for (uint32_t i = 0; i < torch_n_args(torch->graph, tuple); i++) {
        int64_t number;
        if (!torch_integer(torch->graph, torch_arg(torch->graph, tuple, i), &number))
            return torch_print(torch, "%s %u is not an integer from 0 to 2^63-1", what, i);
        if (number < 0)
            return torch_print(torch, "%s %u is negative: %lld", what, i, (long long)number);
        numbers[i] = (uint64_t)number;
    }
    return NULL;
}

int torch_tensor_set_shape(struct torch *torch, struct torch_tensor *tensor, uint32_t size,
                           uint32_t stride)
{
    const uint32_t dims = torch_tuple(torch->graph, size),
                   strides = torch_tuple(torch->graph, stride);
    const uint32_t rank = torch_n_args(torch->graph, dims),
                   n_strides = torch_n_args(torch->graph, strides);
    const char *trouble;
    int code = torch_tensor_reserve(torch, tensor, 0);
    if (code < 0)
        return code;
    if ((size != 0 && dims == 0) || (stride != 0 && strides == 0)) {
        trouble = "its size or stride is not a tuple";
    } else if (rank > torch->limits->rank) {
        trouble = torch_print(torch, "%s above the limit of %llu (limit rank)",
                              wfs_count_as(rank, "dimension is", "dimensions are").text,
                              (unsigned long long)torch->limits->rank);
    } else if (stride != 0 && n_strides != rank) {
        trouble = torch_print(torch, "it has %s but %s", wfs_count(rank, "dimension").text,
                              wfs_count(n_strides, "stride").text);
    } else {
        if ((code = torch_tensor_reserve(torch, tensor, rank)) < 0)
            return code;
        trouble = read_numbers(torch, dims, tensor->dims, "dimension");
        if (trouble == NULL && stride != 0)
            trouble = read_numbers(torch, strides, tensor->strides, "stride");
        tensor->rank = trouble == NULL ? rank : tensor->rank;
        tensor->strides = stride == 0 ? NULL : tensor->strides;
    }
    torch_tensor_spoil(tensor, trouble);
    return 0;
}

static bool is_empty(const struct torch_tensor *tensor)
{
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] == 0)
            return true;
    return false;
}

/* Returns whether it is row-major. Strides of dimensions of size 1 do not matter. */
static bool is_dense(const struct torch_tensor *tensor)
{
    uint64_t step = 1;
    for (uint32_t i = tensor->rank; i-- > 0 && tensor->strides != NULL;) {
        if (tensor->dims[i] == 1)
            continue;
        if (tensor->strides[i] != step || !checked_mul(step, tensor->dims[i], &step))
            return false;
    }
    return true;
}

/* Counts the elements from the first to the last one of the tensor in the storage. */
static bool span_of(const struct torch_tensor *tensor, uint64_t *ret)
{
    uint64_t span = 1, step;
    if (tensor->strides == NULL) {
        const struct wfs_shape shape = {tensor->rank, tensor->dims};
        return wfs_shape_count(&shape, ret) == 0;
    }
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (!checked_mul(tensor->dims[i] - 1, tensor->strides[i], &step) ||
            !checked_add(span, step, &span))
            return false;
    *ret = span;
    return true;
}

/* How elements are counted in a storage: several per byte, or several bytes each. */
struct unit {
    uint64_t n_per_byte, n_bytes;
};

static struct unit unit_of(const struct torch_tensor *tensor)
{
    if (tensor->item_bytes != 0)
        return (struct unit){1, tensor->item_bytes};
    if (tensor->dtype == WFS_F4) /* PyTorch counts pairs */
        return (struct unit){1, 1};
    const unsigned bits = wfs_dtype_bits(tensor->dtype);
    return bits < 8 ? (struct unit){8 / bits, 1} : (struct unit){1, bits / 8};
}

static bool to_bytes(struct unit unit, uint64_t n, uint64_t *ret)
{
    n = n / unit.n_per_byte + (n % unit.n_per_byte != 0);
    return checked_mul(n, unit.n_bytes, ret);
}

/* Checks the tensor against its storage. Returns the trouble, or NULL; *ret_n_bytes is the size
 * of the shown content. */
static const char *check_extent(struct torch *torch, const struct torch_tensor *tensor,
                                uint64_t *ret_n_bytes)
{
    const struct unit unit = unit_of(tensor);
    const struct wfs_shape shape = {tensor->rank, tensor->dims};
    uint64_t n, span, end;
    *ret_n_bytes = 0;
    if (is_empty(tensor))
        return NULL;
    if (wfs_shape_count(&shape, &n) < 0 || !to_bytes(unit, n, ret_n_bytes) ||
        *ret_n_bytes > INT64_MAX) {
        *ret_n_bytes = 0;
        return "the product of its dimensions is above 2^63-1";
    }
    if (tensor->storage.is_absent)
        return torch_tensor_absent;
    if (!span_of(tensor, &span) || !checked_add(span, tensor->offset, &end) ||
        !to_bytes(unit, end, &end))
        return "its strides reach beyond 2^64 bytes";
    if (end > tensor->storage.n_bytes)
        return torch_print(torch, "it ends at byte %llu of its storage, which has %llu",
                           (unsigned long long)end, (unsigned long long)tensor->storage.n_bytes);
    return NULL;
}

static uint64_t *copy_numbers(struct torch *torch, const uint64_t *numbers, uint32_t n,
                              uint32_t n_room)
{
    uint64_t *copy = arena_calloc(&torch->catalog->arena, n_room, sizeof(*copy));
    if (copy != NULL && n > 0)
        memcpy(copy, numbers, n * sizeof(*copy));
    return copy;
}

/* Sets column-major strides. */
static int set_fortran(struct torch *torch, struct torch_tensor *tensor)
{
    const int code = torch_tensor_reserve(torch, tensor, tensor->rank);
    uint64_t step = 1;
    for (uint32_t i = 0; code == 0 && i < tensor->rank; i++) {
        tensor->strides[i] = step;
        if (!checked_mul(step, tensor->dims[i], &step))
            step = 0; /* without elements, or the check fails */
    }
    return code;
}

/*
 * Elements that are not a dtype, or are packed pairs: they are gathered as a tensor of bytes with
 * one more dimension, and the result is a derived source.
 */
static int gather_bytes(struct torch *torch, const struct torch_tensor *tensor, uint64_t n_bytes,
                        struct wfs_stored *stored)
{
    const uint64_t item = unit_of(tensor).n_bytes;
    uint64_t *dims = copy_numbers(torch, tensor->dims, tensor->rank, tensor->rank + 1);
    uint64_t *strides = copy_numbers(torch, tensor->strides, tensor->rank, tensor->rank + 1);
    struct source *derived;
    int code = torch_derived(torch, &derived);
    if (code < 0)
        return code;
    if (dims == NULL || strides == NULL)
        return wfs_fail_memory(torch->err);
    for (uint32_t i = 0; i < tensor->rank; i++)
        strides[i] *= item; /* within the storage: no overflow */
    dims[tensor->rank] = item;
    strides[tensor->rank] = 1;
    struct torch_gathered *gathered = arena_calloc(&torch->catalog->arena, 1, sizeof(*gathered));
    if (gathered == NULL)
        return wfs_fail_memory(torch->err);
    gathered->next = torch->gathered;
    torch->gathered = gathered;
    gathered->tensor = (struct wfs_tensor){
        .key = "",
        .shape = {tensor->rank + 1, dims},
        .n_bytes = n_bytes,
        .stored = {.source = stored->source,
                   .offset = stored->offset,
                   .strides = strides,
                   .dtype = WFS_U8},
        .dtype = WFS_U8,
    };
    stored->source = derived;
    code = derived_add_tensor(derived, &gathered->tensor, &stored->offset);
    return code < 0 ? torch_fail_derived(torch->err, code) : 0;
}

/* Sets where the bytes are. */
static int set_stored(struct torch *torch, struct torch_tensor *tensor, uint64_t n_bytes,
                      struct wfs_tensor *ret)
{
    const struct unit unit = unit_of(tensor);
    const bool is_bytes = tensor->item_bytes != 0 || tensor->dtype == WFS_F4;
    ret->stored = (struct wfs_stored){.source = (struct source *)(uintptr_t)tensor->storage.source,
                                      .offset = tensor->storage.offset +
                                                tensor->offset / unit.n_per_byte * unit.n_bytes,
                                      .dtype = ret->dtype,
                                      .is_big_endian = tensor->storage.is_big_endian && !is_bytes,
                                      .is_conjugate = tensor->is_conjugate,
                                      .is_negative = tensor->is_negative};
    if (is_dense(tensor) && tensor->offset % unit.n_per_byte == 0)
        return 0;
    if (is_bytes)
        return gather_bytes(torch, tensor, n_bytes, &ret->stored);
    if (unit.n_per_byte > 1) {
        ret->trouble = "packed elements that are not contiguous cannot be read";
        return 0;
    }
    ret->stored.strides = copy_numbers(torch, tensor->strides, tensor->rank, tensor->rank);
    return ret->stored.strides == NULL && tensor->rank > 0 ? wfs_fail_memory(torch->err) : 0;
}

/* Sets the shape; a number of packed pairs becomes one of elements. */
static int set_shape(struct torch *torch, struct torch_tensor *tensor, struct wfs_tensor *ret)
{
    uint32_t rank = tensor->rank;
    if (tensor->dtype == WFS_F4 && rank == 0)
        tensor->dims[rank++] = 1;
    uint64_t *dims = copy_numbers(torch, tensor->dims, rank, rank);
    if (rank > 0 && dims == NULL)
        return wfs_fail_memory(torch->err);
    if (tensor->dtype == WFS_F4 && !checked_mul(dims[rank - 1], (uint64_t)2, &dims[rank - 1]))
        return wfs_fail(torch->err, EBADMSG, "tensor '%s' has a dimension that is too large",
                        wfs_quote(ret->key).text);
    ret->shape = (struct wfs_shape){rank, dims};
    return 0;
}

int torch_tensor_add(struct torch *torch, const char *key, uint32_t place,
                     struct torch_tensor *tensor)
{
    uint64_t n_bytes;
    int code = tensor->dims == NULL ? torch_tensor_reserve(torch, tensor, 0) : 0;
    if (code < 0 || (tensor->is_fortran && (code = set_fortran(torch, tensor)) < 0))
        return code;
    if (torch->catalog->n_tensors >= torch->limits->tensors)
        return wfs_fail(torch->err, E2BIG, "more than %s (limit tensors)",
                        wfs_count(torch->limits->tensors, "tensor").text);
    torch_tensor_spoil(tensor, check_extent(torch, tensor, &n_bytes));
    struct wfs_tensor *added = catalog_add(torch->catalog);
    if (added == NULL)
        return wfs_fail_memory(torch->err);
    added->key = key;
    added->place = place;
    added->dtype = (uint8_t)(tensor->item_bytes != 0 ? WFS_OPAQUE : tensor->dtype);
    added->n_bytes = n_bytes;
    added->trouble = tensor->trouble;
    if ((code = set_shape(torch, tensor, added)) < 0)
        return code;
    /* A tensor without elements needs no bytes, and one in trouble cannot show any. */
    if (added->trouble == NULL && n_bytes > 0 &&
        (code = set_stored(torch, tensor, n_bytes, added)) < 0)
        return code;
    if (added->stored.source == NULL)
        added->stored.dtype = added->dtype;
    if (place != 0) {
        torch->catalog->values.places[place].stamp = catalog_stamp(added);
        torch->catalog->values.places[place].kind = PLACE_TENSOR;
    }
    if (tensor->attr_value != NULL &&
        catalog_add_attr(torch->catalog, added, tensor->attr_name, tensor->attr_value) < 0)
        return wfs_fail_memory(torch->err);
    return 0;
}

void torch_tensor_spoil(struct torch_tensor *tensor, const char *trouble)
{
    if (tensor->trouble == NULL)
        tensor->trouble = trouble;
}
