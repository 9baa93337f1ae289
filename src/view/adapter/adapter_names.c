/* SPDX-License-Identifier: MIT */
/*
 * An adapter has the names that the model had in memory when it was trained. A base may be without
 * the name of the model around them, or have one more; then one change must make all of them fit.
 * Names of kohya have underscores in place of dots: the names of the base decide what they mean.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/adapter/parts.h"

/* ---- keys of the base ---- */

/* Calls take with each key that the module may be about, until one is in the base. */
static bool find_parameter(const struct adapter *adapter, const char *name)
{
    const json_t *parameters = json_object_get(adapter->config.json, "target_parameters");
    char key[4096];
    for (size_t i = 0; i < json_array_size(parameters); i++) {
        const char *text = json_string_value(json_array_get(parameters, i));
        const char *dot = text == NULL ? NULL : strrchr(text, '.');
        if (text != NULL &&
            snprintf(key, sizeof(key), "%s.%s", name, dot == NULL ? text : dot + 1) <
                (int)sizeof(key) &&
            adapter_find(adapter, key) != TEXT_INDEX_NONE)
            return true;
    }
    return false;
}

/* Returns whether the base has what the module would be added to under this name. */
static bool fits(const struct adapter *adapter, const struct module *module, const char *name)
{
    static const char inner[] = ".base_layer";
    char key[4096];
    struct slices slices;
    size_t n = strlen(name);
    while (n > strlen(inner) && memcmp(name + n - strlen(inner), inner, strlen(inner)) == 0)
        n -= strlen(inner);
    const bool is_bias = module->leaves[LEAF_WHOLE_BIAS] != NULL;
    if (snprintf(key, sizeof(key), "%.*s%s", (int)n, name, is_bias ? ".bias" : ".weight") >=
        (int)sizeof(key))
        return false;
    if (adapter_find(adapter, key) != TEXT_INDEX_NONE || adapter_find_tied(adapter, key) != NULL)
        return true;
    key[n] = '\0';
    return find_parameter(adapter, key) || adapter_slices_find(adapter, name, &slices);
}

const char *adapter_find_tied(const struct adapter *adapter, const char *key)
{
    return adapter_is_head(key) && adapter_find(adapter, key) == TEXT_INDEX_NONE
               ? adapter->base->embedding
               : NULL;
}

/* ---- another prefix ---- */

/* How all names would be changed: the first `n_cut` segments go, and a prefix comes. */
struct change {
    unsigned n_cut;
    const char *prefix;
    size_t n_prefix; /* with its dot */
};

/* Returns the name after the change, in buf; NULL: it has not so many segments. */
static const char *change_name(const struct change *change, const char *name, char *buf, size_t n)
{
    for (unsigned i = 0; i < change->n_cut; i++) {
        name = strchr(name, '.');
        if (name == NULL)
            return NULL;
        name++;
    }
    return snprintf(buf, n, "%.*s%s", (int)change->n_prefix, change->prefix, name) < (int)n ? buf
                                                                                            : NULL;
}

/* Returns whether it makes all modules fit. */
static bool try_change(const struct adapter *adapter, const struct change *change)
{
    char name[4096];
    for (size_t i = 0; i < adapter->n_modules; i++) {
        const struct module *module = &adapter->modules[i];
        const char *changed = change_name(change, module->name, name, sizeof(name));
        if (changed == NULL || !fits(adapter, module, changed))
            return false;
    }
    return true;
}

/* Tries to put the first segments of a key in front, unless they have been tried. */
static int try_prefixes(const struct adapter *adapter, const char *key, unsigned n_most,
                        struct text_index *tried, struct change *ret, size_t *n_found)
{
    const char *end = key;
    for (unsigned k = 0; k < n_most && (end = strchr(end, '.')) != NULL; k++) {
        const struct change change = {0, key, (size_t)(++end - key)};
        const size_t n_before = tried->n_texts;
        uint32_t id;
        if (text_index_add(tried, key, change.n_prefix, &id) < 0)
            return wfs_fail_memory(adapter->err);
        if (id == n_before && try_change(adapter, &change)) {
            *ret = change;
            ++*n_found;
        }
    }
    return 0;
}

/* Finds the changes that make all fit, of up to n_most segments, and counts them. */
static int find_changes(const struct adapter *adapter, unsigned n_most, struct change *ret,
                        size_t *n_found)
{
    const struct wfs_catalog *catalog = adapter->base->catalog;
    struct text_index tried = {0};
    int code = 0;
    *n_found = 0;
    for (unsigned n_cut = 1; n_cut <= n_most; n_cut++) {
        const struct change change = {n_cut, "", 0};
        if (try_change(adapter, &change)) {
            *ret = change;
            ++*n_found;
        }
    }
    for (size_t i = 0; i < catalog->n_tensors && code == 0; i++)
        code = try_prefixes(adapter, catalog->tensors[i].key, n_most, &tried, ret, n_found);
    text_index_done(&tried);
    return code;
}

/* Writes the option that does the change, in the syntax of sed. */
static const char *describe_change(const struct adapter *adapter, const struct change *change)
{
    struct arena *arena = &adapter->base->catalog->arena;
    if (change->n_cut == 0)
        return arena_print(arena, "s/^/%.*s/", (int)change->n_prefix, change->prefix);
    return arena_print(arena, "s/^([^.]*\\.){%u}//", change->n_cut);
}

static int apply_change(struct adapter *adapter, const struct change *change)
{
    char name[4096];
    for (size_t i = 0; i < adapter->n_modules; i++) {
        const char *changed = change_name(change, adapter->modules[i].name, name, sizeof(name));
        const char *copy = arena_copy(&adapter->base->catalog->arena, changed, strlen(changed));
        if (copy == NULL)
            return wfs_fail_memory(adapter->err);
        adapter->modules[i].name = copy;
    }
    const char *text = describe_change(adapter, change);
    return text == NULL
               ? wfs_fail_memory(adapter->err)
               : adapter_warn(adapter,
                              "names have another prefix than those of the base: they are taken "
                              "as by lora_remap=%s",
                              text);
}

static bool has_experts(const struct adapter *adapter, const struct module *module)
{
    char key[4096];
    snprintf(key, sizeof(key), "%s.", module->name);
    return strstr(module->name, "experts") != NULL ||
           json_array_size(json_object_get(adapter->config.json, "target_parameters")) > 0;
}

/* Reports that a module is not in the base. */
static int fail_module(const struct adapter *adapter, const struct module *module, size_t n_fit)
{
    const struct wfs_catalog *catalog = adapter->base->catalog;
    struct change change;
    char advice[600] = "";
    size_t n_found = 0;
    if (n_fit == 0 && find_changes(adapter, 3, &change, &n_found) < 0)
        return -ENOMEM;
    if (n_found > 0)
        snprintf(advice, sizeof(advice), "; --lora-remap '%s' makes them fit",
                 describe_change(adapter, &change));
    else if (has_experts(adapter, module))
        snprintf(advice, sizeof(advice),
                 "; the adapter is for experts that are one tensor, which the base has apart");
    if (n_fit == 0)
        return wfs_fail(adapter->err, EINVAL,
                        "adapter '%s': none of its %s is in the base; it names '%s', the base "
                        "'%s'%s",
                        wfs_quote(adapter->request->path).text,
                        wfs_count(adapter->n_modules, "module").text, wfs_quote(module->name).text,
                        catalog->n_tensors == 0 ? "" : wfs_quote(catalog->tensors[0].key).text,
                        advice);
    return wfs_fail(adapter->err, EINVAL,
                    "adapter '%s': the base has no '%s.weight', which it has factors for; it has "
                    "%s%s",
                    wfs_quote(adapter->request->path).text, wfs_quote(module->name).text,
                    wfs_count(n_fit, "other").text, advice);
}

/* ---- underscores ---- */

/* Modules of the base by their names with underscores. */
struct flat_names {
    struct text_index index;
    const char **modules; /* malloc'ed, by number; NULL: there are two */
};

static int read_flat_names(const struct adapter *adapter, struct flat_names *flat)
{
    const struct wfs_catalog *catalog = adapter->base->catalog;
    struct arena *arena = &adapter->base->catalog->arena;
    flat->modules = calloc(catalog->n_tensors + 1, sizeof(*flat->modules));
    if (flat->modules == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const char *key = catalog->tensors[i].key, *dot = strrchr(key, '.');
        if (dot == NULL || strcmp(dot, ".weight") != 0)
            continue;
        const size_t n = (size_t)(dot - key), n_before = flat->index.n_texts;
        char *module = arena_copy(arena, key, n), *text = arena_copy(arena, key, n);
        uint32_t id;
        for (char *at = text; at != NULL && *at != '\0'; at++)
            *at = *at == '.' ? '_' : *at;
        if (module == NULL || text == NULL || text_index_add(&flat->index, text, n, &id) < 0)
            return -ENOMEM;
        flat->modules[id] = id == n_before ? module : NULL;
    }
    return 0;
}

static int replace_flat_names(struct adapter *adapter, const struct flat_names *flat,
                              size_t *ret_n_fit)
{
    for (size_t i = 0; i < adapter->n_modules; i++) {
        struct module *module = &adapter->modules[i];
        const uint32_t id = text_index_find(&flat->index, module->name, strlen(module->name));
        if (id == TEXT_INDEX_NONE)
            continue;
        if (flat->modules[id] == NULL)
            return adapter_fail(adapter, EINVAL, module->typed,
                                "fits two modules of the base, whose names differ in dots only");
        module->name = flat->modules[id];
        ++*ret_n_fit;
    }
    return 0;
}

static int find_flat_names(struct adapter *adapter)
{
    struct flat_names flat = {0};
    size_t n_fit = 0;
    int code = read_flat_names(adapter, &flat) < 0 ? wfs_fail_memory(adapter->err)
                                                   : replace_flat_names(adapter, &flat, &n_fit);
    text_index_done(&flat.index);
    free(flat.modules);
    return code;
}

/* ---- components ---- */

/* Removes the modules of other components than the one asked for, or than those that fit. */
static int choose_component(struct adapter *adapter)
{
    const char *part = adapter->request->part, *other = NULL;
    for (size_t i = 0; i < adapter->n_modules && part == NULL; i++) {
        if (fits(adapter, &adapter->modules[i], adapter->modules[i].name))
            part = adapter->modules[i].component;
    }
    size_t n_kept = 0;
    for (size_t i = 0; i < adapter->n_modules && part != NULL; i++) {
        if (strcmp(adapter->modules[i].component, part) == 0)
            adapter->modules[n_kept++] = adapter->modules[i];
        else
            other = adapter->modules[i].component;
    }
    if (part == NULL)
        return 0;
    if (n_kept == 0)
        return wfs_fail(adapter->err, EINVAL, "adapter '%s' has nothing for '%s'; it has '%s'",
                        wfs_quote(adapter->request->path).text, wfs_quote(part).text,
                        other == NULL ? "" : other);
    const size_t n_others = adapter->n_modules - n_kept;
    adapter->n_modules = n_kept;
    return n_others == 0
               ? 0
               : adapter_warn(adapter, "%s for other components, such as '%s', and not used",
                              wfs_count_as(n_others, "module is", "modules are").text, other);
}

int adapter_names_find(struct adapter *adapter)
{
    int code = adapter->config.form == FORM_KOHYA ? find_flat_names(adapter) : 0;
    if (code == 0 && (adapter->config.form == FORM_KOHYA || adapter->config.form == FORM_DIFFUSERS))
        code = choose_component(adapter);
    if (code == 0 && adapter->config.form == FORM_DIFFUSERS)
        code = adapter_config_take_metadata(adapter, adapter->modules[0].component);
    if (code < 0)
        return code;
    size_t n_fit = 0;
    const struct module *missing = NULL;
    for (size_t i = 0; i < adapter->n_modules; i++) {
        const struct module *module = &adapter->modules[i];
        if (fits(adapter, module, module->name))
            n_fit++;
        else if (missing == NULL)
            missing = module;
    }
    if (missing == NULL)
        return 0;
    struct change change;
    size_t n_found = 0;
    if (n_fit == 0 && adapter->config.form != FORM_KOHYA)
        code = find_changes(adapter, 1, &change, &n_found);
    if (code == 0 && n_found == 1)
        return apply_change(adapter, &change);
    return code < 0 ? code : fail_module(adapter, missing, n_fit);
}
