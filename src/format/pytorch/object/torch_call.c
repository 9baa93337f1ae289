/* SPDX-License-Identifier: MIT */
/*
 * Arguments, and the table of known names. Being in it makes a call readable, never executable.
 */
#include "format/pytorch/object/torch_call.h"

#include "catalog/catalog.h"

#include <string.h>

uint32_t torch_n_args(const struct graph *graph, uint32_t args)
{
    if (args == 0)
        return 0;
    const struct value *value = graph_at(graph, args);
    return value->kind == VALUE_TUPLE || value->kind == VALUE_LIST ? value->n : 0;
}

uint32_t torch_arg(const struct graph *graph, uint32_t args, uint32_t i)
{
    return i < torch_n_args(graph, args) ? value_items(graph_at(graph, args))[i] : 0;
}

bool torch_integer(const struct graph *graph, uint32_t id, int64_t *ret)
{
    if (id == 0)
        return false;
    const struct value *value = graph_at(graph, id);
    if (value->kind != VALUE_INT && value->kind != VALUE_BOOL)
        return false;
    *ret = value->integer;
    return true;
}

uint32_t torch_state(const struct graph *graph, const struct value *call)
{
    const uint32_t states = value_part(graph, call, PART_STATES), n = torch_n_args(graph, states);
    return n == 0 ? 0 : torch_arg(graph, states, n - 1);
}

#define G(module, name, what, dtype)                                                               \
    {                                                                                              \
        module, name, sizeof(module) - 1, sizeof(name) - 1, WHAT_##what, WFS_##dtype               \
    }

#define TYPED(name, dtype)                                                                         \
    G("torch", name "Storage", STORAGE, dtype), G("torch", name "Tensor", TENSOR_CLASS, dtype)

#define NUMPY(name, dtype) G("numpy.dtypes", name "DType", NP_DTYPE_CLASS, dtype)

static const struct torch_global globals[] = {
    G("torch._utils", "_rebuild_tensor_v2", REBUILD_TENSOR_V2, U8),
    G("torch._utils", "_rebuild_tensor_v3", REBUILD_TENSOR_V3, U8),
    G("torch._utils", "_rebuild_tensor", REBUILD_TENSOR, U8),
    G("torch._utils", "_rebuild_parameter", REBUILD_PARAMETER, U8),
    G("torch._utils", "_rebuild_parameter_with_state", REBUILD_PARAMETER_STATE, U8),
    G("torch._utils", "_rebuild_qtensor", REBUILD_QTENSOR, U8),
    G("torch._utils", "_rebuild_sparse_tensor", REBUILD_SPARSE, U8),
    G("torch._utils", "_rebuild_sparse_csr_tensor", REBUILD_SPARSE, U8),
    G("torch._utils", "_rebuild_nested_tensor", REBUILD_NESTED, U8),
    G("torch._utils", "_rebuild_meta_tensor_no_storage", REBUILD_META, U8),
    G("torch._utils", "_rebuild_device_tensor_from_numpy", REBUILD_FROM_ARRAY, U8),
    G("torch._utils", "_rebuild_xla_tensor", REBUILD_FROM_ARRAY, U8),
    G("torch._utils", "_rebuild_mlc_tensor", REBUILD_FROM_ARRAY, U8),
    G("torch._utils", "_rebuild_device_tensor_from_cpu_tensor", REBUILD_FROM_TENSOR, U8),
    G("torch._utils", "_rebuild_wrapper_subclass", REBUILD_WRAPPER, U8),
    G("torch._tensor", "_rebuild_from_type_v2", REBUILD_TYPE, U8),
    G("torch._tensor", "_rebuild_from_type", REBUILD_TYPE, U8),
    G("torch.tensor", "_rebuild_from_type_v2", REBUILD_TYPE, U8),
    G("torch.tensor", "_rebuild_from_type", REBUILD_TYPE, U8),
    G("torch.nested._internal.nested_tensor", "_rebuild_njt", REBUILD_NJT, U8),
    G("torch.nn.parameter", "Parameter", PARAMETER, U8),
    G("torch.nn.parameter", "Buffer", PARAMETER, U8),
    G("torch.autograd.variable", "Variable", PARAMETER, U8),
    G("torch.storage", "_load_from_bytes", LOAD_FROM_BYTES, U8),
    G("torch", "Size", SIZE, U8),
    G("torch.serialization", "_get_layout", LAYOUT, U8),
    TYPED("Double", F64),
    TYPED("Float", F32),
    TYPED("Half", F16),
    TYPED("BFloat16", BF16),
    TYPED("Long", I64),
    TYPED("Int", I32),
    TYPED("Short", I16),
    TYPED("Char", I8),
    TYPED("Byte", U8),
    TYPED("Bool", BOOL),
    TYPED("ComplexDouble", C128),
    TYPED("ComplexFloat", C64),
    TYPED("ComplexHalf", C32),
    TYPED("QInt8", I8),
    TYPED("QUInt8", U8),
    TYPED("QInt32", I32),
    TYPED("QUInt4x2", QU4X2),
    TYPED("QUInt2x4", QU2X4),
    G("torch.storage", "UntypedStorage", UNTYPED_STORAGE, U8),
    G("torch.storage", "_UntypedStorage", UNTYPED_STORAGE, U8),
    G("torch", "UntypedStorage", UNTYPED_STORAGE, U8),
    G("torch", "_UntypedStorage", UNTYPED_STORAGE, U8),
    G("torch", "float64", DTYPE, F64),
    G("torch", "double", DTYPE, F64),
    G("torch", "float32", DTYPE, F32),
    G("torch", "float", DTYPE, F32),
    G("torch", "float16", DTYPE, F16),
    G("torch", "half", DTYPE, F16),
    G("torch", "bfloat16", DTYPE, BF16),
    G("torch", "int64", DTYPE, I64),
    G("torch", "long", DTYPE, I64),
    G("torch", "int32", DTYPE, I32),
    G("torch", "int", DTYPE, I32),
    G("torch", "int16", DTYPE, I16),
    G("torch", "short", DTYPE, I16),
    G("torch", "int8", DTYPE, I8),
    G("torch", "uint8", DTYPE, U8),
    G("torch", "uint16", DTYPE, U16),
    G("torch", "uint32", DTYPE, U32),
    G("torch", "uint64", DTYPE, U64),
    G("torch", "bool", DTYPE, BOOL),
    G("torch", "complex128", DTYPE, C128),
    G("torch", "cdouble", DTYPE, C128),
    G("torch", "complex64", DTYPE, C64),
    G("torch", "cfloat", DTYPE, C64),
    G("torch", "complex32", DTYPE, C32),
    G("torch", "chalf", DTYPE, C32),
    G("torch", "bcomplex32", DTYPE, BC32),
    G("torch", "float8_e4m3fn", DTYPE, F8_E4M3),
    G("torch", "float8_e5m2", DTYPE, F8_E5M2),
    G("torch", "float8_e4m3fnuz", DTYPE, F8_E4M3FNUZ),
    G("torch", "float8_e5m2fnuz", DTYPE, F8_E5M2FNUZ),
    G("torch", "float8_e8m0fnu", DTYPE, F8_E8M0),
    G("torch", "float4_e2m1fn_x2", DTYPE, F4),
    G("torch", "bits8", DTYPE, BITS8),
    G("torch", "bits1x8", DTYPE, BITS1X8),
    G("torch", "bits2x4", DTYPE, BITS2X4),
    G("torch", "bits4x2", DTYPE, BITS4X2),
    G("torch", "bits16", DTYPE, BITS16),
    G("torch", "qint8", DTYPE, I8),
    G("torch", "quint8", DTYPE, U8),
    G("torch", "qint32", DTYPE, I32),
    G("torch", "quint4x2", DTYPE, QU4X2),
    G("torch", "quint2x4", DTYPE, QU2X4),
    G("torch", "per_tensor_affine", QSCHEME, U8),
    G("torch", "per_tensor_symmetric", QSCHEME, U8),
    G("torch", "per_channel_affine", QSCHEME, U8),
    G("torch", "per_channel_symmetric", QSCHEME, U8),
    G("torch", "per_channel_affine_float_qparams", QSCHEME, U8),
    G("torch.jit._pickle", "build_intlist", SEQUENCE, U8),
    G("torch.jit._pickle", "build_doublelist", SEQUENCE, U8),
    G("torch.jit._pickle", "build_boollist", SEQUENCE, U8),
    G("torch.jit._pickle", "build_tensorlist", SEQUENCE, U8),
    G("torch.jit._pickle", "restore_type_tag", SEQUENCE, U8),
    G("torch.jit._script", "unpackage_script_module", SEQUENCE, U8),
    G("collections", "OrderedDict", ORDERED_DICT, U8),
    G("collections", "Counter", COUNTER, U8),
    G("collections", "defaultdict", DEFAULT_DICT, U8),
    G("collections", "deque", DEQUE, U8),
    G("builtins", "dict", DICT, U8),
    G("frozendict", "frozendict", FROZEN_DICT, U8),
    G("immutabledict", "immutabledict", FROZEN_DICT, U8),
    G("immutables", "Map", FROZEN_DICT, U8),
    G("flax.core.frozen_dict", "FrozenDict", FROZEN_DICT, U8),
    G("copyreg", "_reconstructor", RECONSTRUCTOR, U8),
    G("functools", "partial", PARTIAL, U8),
    G("_codecs", "encode", ENCODE, U8),
    G("builtins", "bytes", BYTES, U8),
    G("builtins", "bytearray", BYTEARRAY, U8),
    G("builtins", "list", SEQUENCE, U8),
    G("builtins", "tuple", SEQUENCE, U8),
    G("builtins", "set", SEQUENCE, U8),
    G("builtins", "frozenset", SEQUENCE, U8),
    G("numpy.core.multiarray", "_reconstruct", NP_RECONSTRUCT, U8),
    G("numpy.core.numeric", "_frombuffer", NP_FROMBUFFER, U8),
    G("numpy.core.multiarray", "scalar", NP_SCALAR, U8),
    G("numpy", "dtype", NP_DTYPE, U8),
    G("ml_dtypes", "bfloat16", NP_DTYPE_CLASS, BF16),
    G("ml_dtypes", "float8_e4m3fn", NP_DTYPE_CLASS, F8_E4M3),
    G("ml_dtypes", "float8_e5m2", NP_DTYPE_CLASS, F8_E5M2),
    G("ml_dtypes", "float8_e4m3fnuz", NP_DTYPE_CLASS, F8_E4M3FNUZ),
    G("ml_dtypes", "float8_e5m2fnuz", NP_DTYPE_CLASS, F8_E5M2FNUZ),
    G("ml_dtypes", "float8_e8m0fnu", NP_DTYPE_CLASS, F8_E8M0),
    NUMPY("Bool", BOOL),
    NUMPY("Int8", I8),
    NUMPY("UInt8", U8),
    NUMPY("Int16", I16),
    NUMPY("UInt16", U16),
    NUMPY("Int32", I32),
    NUMPY("UInt32", U32),
    NUMPY("Int64", I64),
    NUMPY("UInt64", U64),
    NUMPY("Float16", F16),
    NUMPY("Float32", F32),
    NUMPY("Float64", F64),
    NUMPY("Complex64", C64),
    NUMPY("Complex128", C128),
};

enum { N_GLOBALS = sizeof(globals) / sizeof(globals[0]), TAG_NONE = 255 };
_Static_assert(N_GLOBALS < TAG_NONE, "a tag is one byte");

const char *torch_module(const struct value_global *global)
{
    return strcmp(global->module, "__builtin__") == 0 ? "builtins" : global->module;
}

/* Returns the canonical name of the module: Python 2 and NumPy 2 have other names for some. */
static const char *present_name(const struct value_global *global, char *buf, size_t n_buf)
{
    static const char numpy2[] = "numpy._core.", numpy1[] = "numpy.core.";
    if (strcmp(global->module, "copy_reg") == 0)
        return "copyreg";
    if (strcmp(global->module, "torch.cuda") == 0)
        return "torch";
    if (strncmp(global->module, numpy2, sizeof(numpy2) - 1) != 0 || global->n_module >= n_buf)
        return torch_module(global);
    memcpy(buf, numpy1, sizeof(numpy1) - 1);
    strcpy(buf + sizeof(numpy1) - 1, global->module + sizeof(numpy2) - 1);
    return buf;
}

static uint8_t find_tag(const struct value_global *global)
{
    char buf[64];
    if (strlen(global->module) != global->n_module || strlen(global->name) != global->n_name)
        return TAG_NONE;
    const char *module = present_name(global, buf, sizeof(buf));
    const size_t n_module = strlen(module);
    for (size_t i = 0; i < N_GLOBALS; i++) {
        if (globals[i].n_name == global->n_name && globals[i].n_module == n_module &&
            memcmp(globals[i].name, global->name, global->n_name) == 0 &&
            memcmp(globals[i].module, module, n_module) == 0)
            return (uint8_t)(i + 1);
    }
    return TAG_NONE;
}

uint32_t torch_class_of(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    if (value->kind != VALUE_PERSISTENT)
        return id;
    const uint32_t first = torch_arg(graph, value->id, 0);
    const uint32_t class =
        value_is_text(graph, first, "module") ? torch_arg(graph, value->id, 1) : first;
    return class != 0 && graph_at(graph, class)->kind == VALUE_GLOBAL ? class : id;
}

const struct torch_global *torch_global_of(const struct graph *graph, uint32_t id)
{
    if (id != 0)
        id = torch_class_of(graph, id);
    if (id == 0 || graph_at(graph, id)->kind != VALUE_GLOBAL)
        return NULL;
    struct value *value = graph_at(graph, id);
    if (value->tag == 0)
        value->tag = find_tag(value->global);
    return value->tag == TAG_NONE ? NULL : &globals[value->tag - 1];
}

enum torch_what torch_what_of(const struct graph *graph, const struct value *value)
{
    const struct torch_global *global =
        value->kind == VALUE_CALL ? torch_global_of(graph, value->call.callable) : NULL;
    return global == NULL ? WHAT_UNKNOWN : global->what;
}
