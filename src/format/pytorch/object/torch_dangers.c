/* SPDX-License-Identifier: MIT */
/*
 * A courtesy: describes what a pickle would do in a program that executes it. Safety does not
 * depend on these lists, since nothing is executed here. Names that are neither known to be harmful
 * nor known to be harmless are reported too: Python imports their modules, and calls what the
 * pickle calls.
 */
#include "format/pytorch/object/torch_dangers.h"

#include <weightfs/array.h>
#include "format/pytorch/object/torch_call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPORTED = 64 };

/* Names in a module, each followed by a space. */
struct listed {
    const char *module, *names;
};

/* Modules that are dangerous with all that is in them. */
static const char *const dangerous_modules[] = {"os",
                                                "posix",
                                                "nt",
                                                "sys",
                                                "subprocess",
                                                "runpy",
                                                "pty",
                                                "socket",
                                                "shutil",
                                                "webbrowser",
                                                "importlib",
                                                "marshal",
                                                "ctypes",
                                                "codeop",
                                                "pdb",
                                                "bdb",
                                                "timeit",
                                                "cProfile",
                                                "doctest",
                                                "pip",
                                                "pydoc",
                                                "ensurepip",
                                                "venv",
                                                "distutils",
                                                "lib2to3",
                                                "idlelib",
                                                "asyncio",
                                                "multiprocessing",
                                                "threading",
                                                "signal",
                                                "http",
                                                "urllib",
                                                "httplib",
                                                "urllib2",
                                                "requests",
                                                "ftplib",
                                                "imaplib",
                                                "poplib",
                                                "smtplib",
                                                "telnetlib",
                                                "ssl",
                                                "tempfile",
                                                "fileinput",
                                                "shelve",
                                                "commands",
                                                "linecache",
                                                "_pyrepl",
                                                "aix_support",
                                                "_aix_support",
                                                "_osx_support",
                                                "logging.config",
                                                "test.support",
                                                "torch.hub",
                                                "torch.fx",
                                                "torch.utils.bottleneck",
                                                "torch.utils.collect_env",
                                                "torch.utils._config_module",
                                                "torch.utils.data.datapipes.utils",
                                                "torch._dynamo",
                                                "torch._inductor",
                                                "torch.distributed.rpc",
                                                "numpy.f2py",
                                                "numpy.testing",
                                                "cloudpickle",
                                                "dill",
                                                "joblib.memory",
                                                "pandas.io",
                                                "torch.jit.unsupported_tensor_ops"};

static const struct listed dangerous[] = {
    {"builtins", "eval exec execfile compile __import__ open file input breakpoint delattr setattr "
                 "globals apply "},
    {"code", "interact InteractiveInterpreter InteractiveConsole "},
    {"trace", "Trace "},
    {"profile", "run runctx Profile "},
    {"io", "FileIO open open_code "},
    {"logging", "FileHandler "},
    {"pickle", "load loads "},
    {"cPickle", "load loads "},
    {"_pickle", "load loads "},
    {"_io", "FileIO "},
    {"pkgutil", "resolve_name "},
    {"types", "CodeType FunctionType "},
    {"operator", "attrgetter methodcaller "},
    {"functools", "reduce "},
    {"uuid", "_get_command_stdout _popen "},
    {"torch", "load "},
    {"torch.serialization", "load "},
    {"torch.jit", "load "},
    {"numpy", "load "},
    {"joblib", "load "},
    {"pandas", "read_pickle "},
};

/* Besides the names that have a meaning to the reader. */
static const struct listed harmless[] = {
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

/* Returns whether the name is the outer one, or inside of it. */
static bool is_in(const char *name, const char *outer)
{
    const size_t n = strlen(outer);
    return strncmp(name, outer, n) == 0 && (name[n] == '\0' || name[n] == '.');
}

static bool is_in_any(const char *name, const char *const *outer, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_in(name, outer[i]))
            return true;
    return false;
}

/* Returns whether a list has the first n bytes of the name for the module. */
static bool is_listed(const struct listed *lists, size_t n_lists, const char *module,
                      const char *name, size_t n)
{
    for (size_t i = 0; i < n_lists; i++) {
        if (strcmp(lists[i].module, module) != 0)
            continue;
        for (const char *at = lists[i].names; *at != '\0'; at = strchr(at, ' ') + 1)
            if (strncmp(at, name, n) == 0 && at[n] == ' ')
                return true;
    }
    return false;
}

static bool is_dangerous(const struct value_global *global)
{
    const char *module = torch_module(global);
    return is_in_any(module, dangerous_modules,
                     sizeof(dangerous_modules) / sizeof(*dangerous_modules)) ||
           (strchr(global->name, ' ') == NULL &&
            is_listed(dangerous, sizeof(dangerous) / sizeof(*dangerous), module, global->name,
                      strcspn(global->name, ".")));
}

bool torch_is_harmless(const struct graph *graph, uint32_t id)
{
    const struct value_global *global = graph_at(graph, id)->global;
    const char *module = torch_module(global), *name = global->name;
    if (strlen(global->module) != global->n_module || strlen(name) != global->n_name ||
        strchr(name, ' ') != NULL)
        return false;
    /* The code of classes of TorchScript is not Python's. */
    if (torch_global_of(graph, id) != NULL || is_in(module, "__torch__"))
        return true;
    const bool is_path = strchr(name, '.') != NULL;
    if (name[0] >= 'A' && name[0] <= 'Z' && !is_path &&
        is_in_any(module, of_classes, sizeof(of_classes) / sizeof(*of_classes)))
        return true;
    /* Functions that make tensors of what they are given. */
    if (strcmp(module, "torch._utils") == 0 && strncmp(name, "_rebuild_", 9) == 0 && !is_path)
        return true;
    return is_listed(harmless, sizeof(harmless) / sizeof(*harmless), module, name, strlen(name));
}

static bool is_hash(const void *ctx, uint32_t i)
{
    const struct torch_dangers *found = ctx;
    return found->hashes[i] == found->wanted;
}

/* Adds the name to those that were found. Returns whether it is new. */
static bool add_name(struct torch *torch, const struct value_global *global)
{
    struct torch_dangers *found = torch->dangers;
    uint32_t i;
    /* A hash decides whether names are equal; it is keyed, so that nobody can prepare equal ones.
     */
    found->wanted = hash_bytes(global->name, global->n_name,
                               hash_bytes(global->module, global->n_module, hash_seed()));
    if (map_find(&found->map, found->wanted, is_hash, found, &i))
        return false;
    if (array_reserve(&found->hashes, sizeof(*found->hashes), found->n_names, 1, &found->n_room) <
            0 ||
        map_add(&found->map, found->wanted, found->n_names) < 0) {
        torch->has_failed = true;
        return false;
    }
    found->hashes[found->n_names++] = found->wanted;
    return true;
}

void torch_dangers_note(struct torch *torch, const struct value_global *global)
{
    struct torch_dangers *found = torch->dangers;
    if (found == NULL || !add_name(torch, global))
        return;
    const bool is_danger = is_dangerous(global);
    uint64_t *n = is_danger ? &found->n_dangers : &found->n_unknown;
    if (++*n <= MAX_REPORTED &&
        catalog_add_finding(
            torch->catalog, (is_danger ? WFS_HIGH : WFS_INFO) | WFS_FINDING_CODE,
            is_danger
                ? "the pickle refers to %s of module %s, which can run any code when Python loads "
                  "the file; weightfs ran nothing"
                : "the pickle refers to %s of module %s, which is not known to be harmless: Python "
                  "imports it, and may call it, when it loads the file",
            wfs_quote(global->name).text, wfs_quote(global->module).text) < 0)
        torch->has_failed = true;
}

void torch_dangers_add(struct torch *torch)
{
    const struct graph *graph = torch->graph;
    for (uint32_t id = 1; id <= graph->n_values && !torch->has_failed; id++) {
        const struct value *value = graph_at(graph, id);
        if (value->kind == VALUE_GLOBAL && !torch_is_harmless(graph, id))
            torch_dangers_note(torch, value->global);
    }
}

static void report_more(struct torch *torch, enum wfs_severity severity, uint64_t n,
                        const char *what)
{
    if (n > MAX_REPORTED &&
        catalog_add_finding(torch->catalog, severity | WFS_FINDING_CODE,
                            "the pickle refers to %s %s",
                            wfs_count(n - MAX_REPORTED, "more name").text, what) < 0)
        torch->has_failed = true;
}

void torch_dangers_report(struct torch *torch)
{
    torch_dangers_add(torch);
    report_more(torch, WFS_HIGH, torch->dangers->n_dangers,
                "that can run any code when Python loads the file");
    report_more(torch, WFS_INFO, torch->dangers->n_unknown, "not known to be harmless");
}

void torch_dangers_done(struct torch_dangers *found)
{
    free(found->hashes);
    map_done(&found->map);
    *found = (struct torch_dangers){0};
}
