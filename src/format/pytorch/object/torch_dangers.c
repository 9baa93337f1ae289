/* SPDX-License-Identifier: MIT */
/*
 * A courtesy: describes what a pickle would do in a program that executes it. Safety does not
 * depend on this list, since nothing is executed here.
 */
#include "format/pytorch/object/torch_dangers.h"

#include <errno.h>
#include <string.h>

#include "format/pytorch/object/torch_global.h"

/* A module, everything in it, or (with a name) one thing in it. */
struct danger {
    const char *module, *name;
};

static const struct danger dangers[] = {
    {"os", NULL},
    {"posix", NULL},
    {"nt", NULL},
    {"sys", NULL},
    {"subprocess", NULL},
    {"runpy", NULL},
    {"pty", NULL},
    {"socket", NULL},
    {"shutil", NULL},
    {"webbrowser", NULL},
    {"importlib", NULL},
    {"marshal", NULL},
    {"ctypes", NULL},
    {"codeop", NULL},
    {"pdb", NULL},
    {"bdb", NULL},
    {"timeit", NULL},
    {"cProfile", NULL},
    {"doctest", NULL},
    {"pip", NULL},
    {"pydoc", NULL},
    {"ensurepip", NULL},
    {"venv", NULL},
    {"distutils", NULL},
    {"lib2to3", NULL},
    {"idlelib", NULL},
    {"asyncio", NULL},
    {"multiprocessing", NULL},
    {"threading", NULL},
    {"signal", NULL},
    {"http", NULL},
    {"urllib", NULL},
    {"httplib", NULL},
    {"urllib2", NULL},
    {"requests", NULL},
    {"ftplib", NULL},
    {"imaplib", NULL},
    {"poplib", NULL},
    {"smtplib", NULL},
    {"telnetlib", NULL},
    {"ssl", NULL},
    {"tempfile", NULL},
    {"fileinput", NULL},
    {"shelve", NULL},
    {"commands", NULL},
    {"linecache", NULL},
    {"_pyrepl", NULL},
    {"aix_support", NULL},
    {"_aix_support", NULL},
    {"_osx_support", NULL},
    {"logging.config", NULL},
    {"test.support", NULL},
    {"torch.hub", NULL},
    {"torch.fx", NULL},
    {"torch.utils.bottleneck", NULL},
    {"torch.utils.collect_env", NULL},
    {"torch.utils._config_module", NULL},
    {"torch.utils.data.datapipes.utils", NULL},
    {"torch._dynamo", NULL},
    {"torch._inductor", NULL},
    {"torch.distributed.rpc", NULL},
    {"numpy.f2py", NULL},
    {"numpy.testing", NULL},
    {"cloudpickle", NULL},
    {"dill", NULL},
    {"joblib.memory", NULL},
    {"pandas.io", NULL},
    {"builtins", "eval"},
    {"builtins", "exec"},
    {"builtins", "execfile"},
    {"builtins", "compile"},
    {"builtins", "__import__"},
    {"builtins", "open"},
    {"builtins", "file"},
    {"builtins", "input"},
    {"builtins", "breakpoint"},
    {"builtins", "delattr"},
    {"builtins", "setattr"},
    {"builtins", "globals"},
    {"builtins", "apply"},
    {"code", "interact"},
    {"code", "InteractiveInterpreter"},
    {"code", "InteractiveConsole"},
    {"trace", "Trace"},
    {"profile", "run"},
    {"profile", "runctx"},
    {"profile", "Profile"},
    {"io", "FileIO"},
    {"io", "open"},
    {"io", "open_code"},
    {"logging", "FileHandler"},
    {"pickle", "load"},
    {"pickle", "loads"},
    {"cPickle", "load"},
    {"cPickle", "loads"},
    {"_pickle", "load"},
    {"_pickle", "loads"},
    {"_io", "FileIO"},
    {"pkgutil", "resolve_name"},
    {"torch.jit.unsupported_tensor_ops", NULL},
    {"types", "CodeType"},
    {"types", "FunctionType"},
    {"operator", "attrgetter"},
    {"operator", "methodcaller"},
    {"functools", "reduce"},
    {"uuid", "_get_command_stdout"},
    {"uuid", "_popen"},
    {"torch", "load"},
    {"torch.serialization", "load"},
    {"torch.jit", "load"},
    {"numpy", "load"},
    {"joblib", "load"},
    {"pandas", "read_pickle"},
};

enum { N_DANGERS = sizeof(dangers) / sizeof(dangers[0]), MAX_NAMED = 8 };

/* Returns whether the name is the outer one, or inside of it. */
static bool is_in(const char *name, const char *outer)
{
    const size_t n = strlen(outer);
    return strncmp(name, outer, n) == 0 && (name[n] == '\0' || name[n] == '.');
}

static bool is_dangerous(const struct value_global *global)
{
    const char *module = strcmp(global->module, "__builtin__") == 0 ? "builtins" : global->module;
    for (size_t i = 0; i < N_DANGERS; i++) {
        const struct danger *danger = &dangers[i];
        if (danger->name == NULL
                ? is_in(module, danger->module)
                : strcmp(module, danger->module) == 0 && is_in(global->name, danger->name))
            return true;
    }
    return false;
}

/* Returns whether an equal global was found: a pickle without a memo repeats them. */
static bool is_known(const struct graph *graph, const uint32_t *found, unsigned n_found,
                     uint32_t id)
{
    for (unsigned i = 0; i < n_found; i++)
        if (value_is_same_key(graph, found[i], id))
            return true;
    return false;
}

int torch_dangers_report(struct torch *torch)
{
    const struct graph *graph = torch->graph;
    uint32_t found[MAX_NAMED];
    unsigned n_found = 0;
    for (uint32_t id = 1; id <= graph->n_values && n_found < MAX_NAMED; id++) {
        const struct value *value = graph_at(graph, id);
        if (value->kind != VALUE_GLOBAL || torch_global_of(graph, id) != NULL ||
            !is_dangerous(value->global) || is_known(graph, found, n_found, id))
            continue;
        found[n_found++] = id;
        if (catalog_add_finding(torch->catalog, WFS_FINDING_PT_DANGER,
                                "the pickle refers to %s of module %s, which can run any code when "
                                "Python loads the file; weightfs ran nothing",
                                wfs_quote(value->global->name).text,
                                wfs_quote(value->global->module).text) < 0)
            return -ENOMEM;
    }
    return 0;
}
