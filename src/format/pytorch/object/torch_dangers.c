/* SPDX-License-Identifier: MIT */
/*
 * A courtesy: describes what a pickle would do in a program that executes it. Safety does not
 * depend on this list, since nothing is executed here. Names that are neither on it nor on that of
 * the harmless are reported too: Python imports their modules, and calls what the pickle calls.
 */
#include "format/pytorch/object/torch_dangers.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/torch_harmless.h"

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

enum { N_DANGERS = sizeof(dangers) / sizeof(dangers[0]), MAX_REPORTED = 64 };

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

/* A hash decides whether names are equal; it is keyed, so that nobody can prepare equal ones. */
static uint64_t hash_of(const struct value_global *global)
{
    return hash_bytes(global->name, global->n_name,
                      hash_bytes(global->module, global->n_module, hash_seed()));
}

static bool is_hash(const void *ctx, uint32_t i)
{
    const struct torch_dangers *found = *(const struct torch_dangers *const *)ctx;
    return found->hashes[i] == found->wanted;
}

/* Returns 1 for a name that is new, 0 for another one. */
static int add_name(struct torch_dangers *found, const struct value_global *global)
{
    uint32_t i;
    found->wanted = hash_of(global);
    if (map_find(&found->map, found->wanted, is_hash, &found, &i))
        return 0;
    if (array_reserve(&found->hashes, sizeof(*found->hashes), found->n_names, 1, &found->n_room) <
            0 ||
        map_add(&found->map, found->wanted, found->n_names) < 0)
        return -ENOMEM;
    found->hashes[found->n_names++] = found->wanted;
    return 1;
}

/* Adds a finding for a name, unless there are too many of its kind. */
static int report(struct torch *torch, const struct value_global *global)
{
    struct torch_dangers *found = torch->dangers;
    const bool is_danger = is_dangerous(global);
    uint64_t *n = is_danger ? &found->n_dangers : &found->n_unknown;
    if (++*n > MAX_REPORTED)
        return 0;
    return catalog_add_finding(
        torch->catalog, is_danger ? WFS_FINDING_PT_DANGER : WFS_FINDING_PT_UNKNOWN,
        is_danger
            ? "the pickle refers to %s of module %s, which can run any code when Python loads "
              "the file; weightfs ran nothing"
            : "the pickle refers to %s of module %s, which is not known to be harmless: Python "
              "imports it, and may call it, when it loads the file",
        wfs_quote(global->name).text, wfs_quote(global->module).text);
}

int torch_dangers_note(struct torch *torch, const struct value_global *global)
{
    if (torch->dangers == NULL)
        return 0;
    const int code = add_name(torch->dangers, global);
    return code == 1 ? report(torch, global) : code;
}

int torch_dangers_add(struct torch *torch, uint32_t first)
{
    const struct graph *graph = torch->graph;
    int code = 0;
    for (uint32_t id = first; id <= graph->n_values && code == 0; id++) {
        const struct value *value = graph_at(graph, id);
        if (value->kind != VALUE_GLOBAL || torch_is_harmless(graph, id))
            continue;
        code = torch_dangers_note(torch, value->global);
    }
    return code;
}

static int report_more(struct torch *torch, enum wfs_finding_kind kind, uint64_t n,
                       const char *what)
{
    if (n <= MAX_REPORTED)
        return 0;
    return catalog_add_finding(torch->catalog, kind, "the pickle refers to %s %s",
                               wfs_count(n - MAX_REPORTED, "more name").text, what);
}

int torch_dangers_report(struct torch *torch)
{
    const struct torch_dangers *found = torch->dangers;
    int code = torch_dangers_add(torch, 1);
    if (code == 0)
        code = report_more(torch, WFS_FINDING_PT_DANGER, found->n_dangers,
                           "that can run any code when Python loads the file");
    return code < 0 ? code
                    : report_more(torch, WFS_FINDING_PT_UNKNOWN, found->n_unknown,
                                  "not known to be harmless");
}

void torch_dangers_done(struct torch_dangers *found)
{
    free(found->hashes);
    map_done(&found->map);
    *found = (struct torch_dangers){0};
}
