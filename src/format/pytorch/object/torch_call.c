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

bool torch_is_latin1(const struct graph *graph, uint32_t codec)
{
    return value_is_text(graph, codec, "latin1") || value_is_text(graph, codec, "latin-1") ||
           value_is_text(graph, codec, "iso-8859-1");
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

#define CALL(module, name, what) G(module, name, what, U8)
#define UTIL(name, what) G("torch._utils", "_rebuild_" name, REBUILD_##what, U8)
#define TYPED(name, dtype)                                                                         \
    G("torch", name "Storage", STORAGE, dtype), G("torch", name "Tensor", TENSOR_CLASS, dtype)
#define DTYPE(name, dtype) G("torch", name, DTYPE, dtype)
#define SCHEME(name) G("torch", name, QSCHEME, U8)
#define ML_DTYPE(name, dtype) G("ml_dtypes", name, NP_DTYPE_CLASS, dtype)
#define NUMPY(name, dtype) G("numpy.dtypes", name "DType", NP_DTYPE_CLASS, dtype)

static const struct torch_global globals[] = {
    /* functions that make tensors */
    UTIL("tensor_v2", TENSOR_V2), UTIL("tensor_v3", TENSOR_V3), UTIL("tensor", TENSOR),
    UTIL("parameter", PARAMETER), UTIL("parameter_with_state", PARAMETER_STATE),
    UTIL("qtensor", QTENSOR), UTIL("sparse_tensor", SPARSE), UTIL("sparse_csr_tensor", SPARSE),
    UTIL("nested_tensor", NESTED), UTIL("meta_tensor_no_storage", META),
    UTIL("device_tensor_from_numpy", FROM_ARRAY), UTIL("xla_tensor", FROM_ARRAY),
    UTIL("mlc_tensor", FROM_ARRAY), UTIL("device_tensor_from_cpu_tensor", FROM_TENSOR),
    UTIL("wrapper_subclass", WRAPPER),
    /* classes of storages and of old tensors */
    TYPED("Double", F64), TYPED("Float", F32), TYPED("Half", F16), TYPED("BFloat16", BF16),
    TYPED("Long", I64), TYPED("Int", I32), TYPED("Short", I16), TYPED("Char", I8),
    TYPED("Byte", U8), TYPED("Bool", BOOL), TYPED("ComplexDouble", C128),
    TYPED("ComplexFloat", C64), TYPED("ComplexHalf", C32), TYPED("QInt8", I8), TYPED("QUInt8", U8),
    TYPED("QInt32", I32), TYPED("QUInt4x2", QU4X2), TYPED("QUInt2x4", QU2X4),
    /* dtypes and quantization */
    DTYPE("float64", F64), DTYPE("double", F64), DTYPE("float32", F32), DTYPE("float", F32),
    DTYPE("float16", F16), DTYPE("half", F16), DTYPE("bfloat16", BF16), DTYPE("int64", I64),
    DTYPE("long", I64), DTYPE("int32", I32), DTYPE("int", I32), DTYPE("int16", I16),
    DTYPE("short", I16), DTYPE("int8", I8), DTYPE("uint8", U8), DTYPE("uint16", U16),
    DTYPE("uint32", U32), DTYPE("uint64", U64), DTYPE("bool", BOOL), DTYPE("complex128", C128),
    DTYPE("cdouble", C128), DTYPE("complex64", C64), DTYPE("cfloat", C64), DTYPE("complex32", C32),
    DTYPE("chalf", C32), DTYPE("bcomplex32", BC32), DTYPE("float8_e4m3fn", F8_E4M3),
    DTYPE("float8_e5m2", F8_E5M2), DTYPE("float8_e4m3fnuz", F8_E4M3FNUZ),
    DTYPE("float8_e5m2fnuz", F8_E5M2FNUZ), DTYPE("float8_e8m0fnu", F8_E8M0),
    DTYPE("float4_e2m1fn_x2", F4), DTYPE("bits8", BITS8), DTYPE("bits1x8", BITS1X8),
    DTYPE("bits2x4", BITS2X4), DTYPE("bits4x2", BITS4X2), DTYPE("bits16", BITS16),
    DTYPE("qint8", I8), DTYPE("quint8", U8), DTYPE("qint32", I32), DTYPE("quint4x2", QU4X2),
    DTYPE("quint2x4", QU2X4), SCHEME("per_tensor_affine"), SCHEME("per_tensor_symmetric"),
    SCHEME("per_channel_affine"), SCHEME("per_channel_symmetric"),
    SCHEME("per_channel_affine_float_qparams"),
    /* dtypes of numpy */
    NUMPY("Bool", BOOL), NUMPY("Int8", I8), NUMPY("UInt8", U8), NUMPY("Int16", I16),
    NUMPY("UInt16", U16), NUMPY("Int32", I32), NUMPY("UInt32", U32), NUMPY("Int64", I64),
    NUMPY("UInt64", U64), NUMPY("Float16", F16), NUMPY("Float32", F32), NUMPY("Float64", F64),
    NUMPY("Complex64", C64), NUMPY("Complex128", C128), ML_DTYPE("bfloat16", BF16),
    ML_DTYPE("float8_e4m3fn", F8_E4M3), ML_DTYPE("float8_e5m2", F8_E5M2),
    ML_DTYPE("float8_e4m3fnuz", F8_E4M3FNUZ), ML_DTYPE("float8_e5m2fnuz", F8_E5M2FNUZ),
    ML_DTYPE("float8_e8m0fnu", F8_E8M0),
    /* everything else */
    CALL("torch._tensor", "_rebuild_from_type_v2", REBUILD_TYPE),
    CALL("torch._tensor", "_rebuild_from_type", REBUILD_TYPE),
    CALL("torch.tensor", "_rebuild_from_type_v2", REBUILD_TYPE),
    CALL("torch.tensor", "_rebuild_from_type", REBUILD_TYPE),
    CALL("torch.nested._internal.nested_tensor", "_rebuild_njt", REBUILD_NJT),
    CALL("torch.nn.parameter", "Parameter", PARAMETER),
    CALL("torch.nn.parameter", "Buffer", PARAMETER),
    CALL("torch.autograd.variable", "Variable", PARAMETER),
    CALL("torch.storage", "_load_from_bytes", LOAD_FROM_BYTES), CALL("torch", "Size", SIZE),
    CALL("torch.serialization", "_get_layout", LAYOUT),
    CALL("torch.storage", "UntypedStorage", UNTYPED_STORAGE),
    CALL("torch.storage", "_UntypedStorage", UNTYPED_STORAGE),
    CALL("torch", "UntypedStorage", UNTYPED_STORAGE),
    CALL("torch", "_UntypedStorage", UNTYPED_STORAGE),
    CALL("torch.jit._pickle", "build_intlist", SEQUENCE),
    CALL("torch.jit._pickle", "build_doublelist", SEQUENCE),
    CALL("torch.jit._pickle", "build_boollist", SEQUENCE),
    CALL("torch.jit._pickle", "build_tensorlist", SEQUENCE),
    CALL("torch.jit._pickle", "restore_type_tag", SEQUENCE),
    CALL("torch.jit._script", "unpackage_script_module", SEQUENCE),
    CALL("collections", "OrderedDict", ORDERED_DICT), CALL("collections", "Counter", COUNTER),
    CALL("collections", "defaultdict", DEFAULT_DICT), CALL("collections", "deque", DEQUE),
    CALL("builtins", "dict", DICT), CALL("frozendict", "frozendict", FROZEN_DICT),
    CALL("immutabledict", "immutabledict", FROZEN_DICT), CALL("immutables", "Map", FROZEN_DICT),
    CALL("flax.core.frozen_dict", "FrozenDict", FROZEN_DICT),
    CALL("copyreg", "_reconstructor", RECONSTRUCTOR), CALL("functools", "partial", PARTIAL),
    CALL("_codecs", "encode", ENCODE), CALL("builtins", "bytes", BYTES),
    CALL("builtins", "bytearray", BYTEARRAY), CALL("builtins", "list", SEQUENCE),
    CALL("builtins", "tuple", SEQUENCE), CALL("builtins", "set", SEQUENCE),
    CALL("builtins", "frozenset", SEQUENCE),
    CALL("numpy.core.multiarray", "_reconstruct", NP_RECONSTRUCT),
    CALL("numpy.core.numeric", "_frombuffer", NP_FROMBUFFER),
    CALL("numpy.core.multiarray", "scalar", NP_SCALAR), CALL("numpy", "dtype", NP_DTYPE)};

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

uint32_t torch_tuple(const struct graph *graph, uint32_t id)
{
    if (id != 0 && torch_what_of(graph, graph_at(graph, id)) == WHAT_SIZE)
        id = torch_arg(graph, graph_at(graph, id)->call.args, 0);
    if (id == 0)
        return 0;
    const struct value *value = graph_at(graph, id);
    return value->kind == VALUE_TUPLE || value->kind == VALUE_LIST ? id : 0;
}
