/* SPDX-License-Identifier: MIT */
/*
 * The list, besides the names that have a meaning to the reader.
 */
#include "format/pytorch/object/torch_harmless.h"

#include <string.h>

#include "format/pytorch/object/torch_global.h"

/* Names in a module, each followed by a space. */
struct names {
    const char *module, *names;
};

static const struct names listed[] = {
    {"builtins", "bool complex dict float int long object range slice str unicode xrange Ellipsis "
                 "NotImplemented "},
    {"collections", "Counter OrderedDict UserDict UserList defaultdict deque "},
    {"copyreg", "__newobj__ __newobj_ex__ _reconstructor "},
    {"copy_reg", "__newobj__ _reconstructor "},
    {"_io", "BytesIO StringIO "},
    {"argparse", "Namespace "},
    {"datetime", "date datetime time timedelta timezone "},
    {"decimal", "Decimal "},
    {"fractions", "Fraction "},
    {"functools", "partial "},
    {"pathlib", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath "},
    {"pathlib._local", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath "},
    {"types", "SimpleNamespace "},
    {"typing", "Any Dict List Optional Tuple Union "},
    {"uuid", "SafeUUID UUID "},
    {"numpy",
     "bool_ bytes_ complex128 complex64 datetime64 float16 float32 float64 int16 int32 "
     "int64 int8 longdouble ndarray object_ recarray record str_ timedelta64 uint16 uint32 "
     "uint64 uint8 void "},
    {"ml_dtypes", "float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 "
                  "float8_e4m3b11fnuz int1 int2 int4 uint1 uint2 uint4 "},
    {"numpy.core.multiarray", "_reconstruct scalar "},
    {"numpy._core.multiarray", "_reconstruct scalar "},
    {"numpy.rec", "recarray record "}, /* as numpy 2 calls them */
    {"numpy.random._pickle", "__bit_generator_ctor __generator_ctor __randomstate_ctor "},
    {"numpy.random._mt19937", "MT19937 "},
    {"numpy.random._pcg64", "PCG64 "},
    {"numpy.random.bit_generator", "SeedSequence __pyx_unpickle_SeedSequence "},
    {"torch", "Generator ScriptObject Tensor channels_last channels_last_3d contiguous_format "
              "device int1 int2 int3 int4 int5 int6 int7 jagged preserve_format sparse_bsc "
              "sparse_bsr sparse_coo sparse_csc sparse_csr strided uint1 uint2 uint3 uint4 uint5 "
              "uint6 uint7 "},
    {"torch._C", "Generator "},
    {"torch._C._nn", "gelu "},
    {"torch.amp.grad_scaler", "GradScaler OptState _refresh_per_optimizer_state "},
    {"torch.cuda.amp.grad_scaler", "GradScaler OptState _refresh_per_optimizer_state "},
    {"torch.nn.functional", "elu gelu leaky_relu mish relu sigmoid silu softmax tanh "},
    {"torch.nested._internal.nested_tensor", "NestedTensor "},
    {"torch.storage", "TypedStorage _TypedStorage "},
};

/* Modules, with those in them, whose classes are all harmless; by convention only classes begin
 * with a capital letter. */
static const char *const of_classes[] = {"numpy.dtypes", "torch.ao.nn", "torch.ao.quantization",
                                         "torch.nn", "torch.optim"};

static bool is_listed(const struct names *names, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = names->names; *at != '\0'; at = strchr(at, ' ') + 1)
        if (strncmp(at, name, n) == 0 && at[n] == ' ')
            return true;
    return false;
}

static bool is_class(const struct value_global *global)
{
    if (global->name[0] < 'A' || global->name[0] > 'Z' || strchr(global->name, '.') != NULL)
        return false;
    for (size_t i = 0; i < sizeof(of_classes) / sizeof(*of_classes); i++) {
        const size_t n = strlen(of_classes[i]);
        if (strncmp(global->module, of_classes[i], n) == 0 &&
            (global->module[n] == '\0' || global->module[n] == '.'))
            return true;
    }
    return false;
}

/* Returns whether it is a class of TorchScript, whose code is not Python's. */
static bool is_script(const struct value_global *global)
{
    static const char prefix[] = "__torch__";
    const size_t n = sizeof(prefix) - 1;
    return strncmp(global->module, prefix, n) == 0 &&
           (global->module[n] == '\0' || global->module[n] == '.');
}

bool torch_is_harmless(const struct graph *graph, uint32_t id)
{
    const struct value_global *global = graph_at(graph, id)->global;
    if (strlen(global->module) != global->n_module || strlen(global->name) != global->n_name ||
        strchr(global->name, ' ') != NULL)
        return false;
    if (torch_global_of(graph, id) != NULL || is_script(global) || is_class(global))
        return true;
    const char *module = strcmp(global->module, "__builtin__") == 0 ? "builtins" : global->module;
    for (size_t i = 0; i < sizeof(listed) / sizeof(*listed); i++)
        if (strcmp(listed[i].module, module) == 0 && is_listed(&listed[i], global->name))
            return true;
    /* Functions that make tensors of what they are given. */
    return strcmp(module, "torch._utils") == 0 && strncmp(global->name, "_rebuild_", 9) == 0 &&
           strchr(global->name, '.') == NULL;
}
