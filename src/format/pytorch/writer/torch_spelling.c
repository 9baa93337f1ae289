/* SPDX-License-Identifier: MIT */
/*
 * The function that makes a tensor, the class of its storage, and its dtype. Dtypes that PyTorch
 * added late have no storage class.
 */
#include "format/pytorch/writer/torch_spelling.h"

#include <weightfs/cleanup.h>

#include <string.h>

#include "base/bytes.h"

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

static uint32_t tuple_of(struct torch_plan *plan, const uint64_t *numbers, uint32_t n)
{
    uint32_t small[16];
    autofree uint32_t *large = NULL;
    uint32_t *ids = small;
    if (n > 16 && (ids = large = calloc(n, sizeof(*ids))) == NULL)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if ((ids[i] = value_new_integer(&plan->graph, (int64_t)numbers[i])) == 0)
            return 0;
    return value_new_items(&plan->graph, VALUE_TUPLE, ids, n);
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

/* Makes the tuples of sizes and strides. */
static bool add_shape(struct torch_plan *plan, const struct wfs_tensor *tensor,
                      const struct torch_view *view, uint32_t ret[2])
{
    const uint32_t rank = tensor->shape.rank;
    autofree uint64_t *numbers = calloc(2 * (size_t)rank + 1, sizeof(*numbers));
    if (numbers == NULL)
        return false;
    torch_spelling_shape(tensor, numbers, numbers + rank);
    ret[0] = tuple_of(plan, numbers, rank);
    ret[1] = tuple_of(plan, view->strides != NULL ? view->strides : numbers + rank, rank);
    return ret[0] != 0 && ret[1] != 0;
}

uint32_t torch_spelling_record(struct torch_plan *plan, const struct torch_view *view)
{
    const uint32_t record = value_new(&plan->graph, VALUE_RECORD);
    if (record != 0)
        graph_at(&plan->graph, record)->id = view->record;
    return record;
}

uint32_t torch_spelling_call(struct torch_plan *plan, const struct wfs_tensor *tensor,
                             const struct torch_view *view)
{
    struct graph *graph = &plan->graph;
    const struct torch_spelling *spelling = torch_spelling_of((enum wfs_dtype)tensor->dtype);
    const bool is_late = spelling->class == NULL;
    uint32_t args[7], n = 0;
    const uint32_t record = torch_spelling_record(plan, view);
    const uint32_t builder =
        torch_plan_global(plan, &plan->builders[is_late], "torch._utils",
                          is_late ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    if (record == 0 || builder == 0)
        return 0;
    args[n++] = record;
    args[n++] = value_new_integer(graph, (int64_t)view->offset);
    if (!add_shape(plan, tensor, view, &args[n]))
        return 0;
    n += 2;
    args[n++] = view->requires_grad != 0 ? view->requires_grad : value_new(graph, VALUE_BOOL);
    args[n++] = view->hooks != 0 ? view->hooks : torch_plan_dict(plan);
    if (is_late)
        args[n++] = torch_plan_global(plan, &plan->dtypes[tensor->dtype], "torch", spelling->dtype);
    for (uint32_t i = 0; i < n; i++)
        if (args[i] == 0)
            return 0;
    const uint32_t tuple = value_new_items(graph, VALUE_TUPLE, args, n);
    return tuple == 0 ? 0 : value_new_call(graph, FORM_REDUCE, builder, tuple);
}
