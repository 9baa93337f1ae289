/* SPDX-License-Identifier: MIT */
/*
 * One adapter after the other: what the file is, whose names it has, and what each module adds.
 */
#include "view/adapter/adapter_base.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view/adapter/parts.h"

/* What was done, for the report. */
static int report(const struct adapter *a)
{
    char rank[80] = "", scale[80] = "";
    if (a->most_rank > 0) {
        snprintf(rank, sizeof(rank),
                 a->least_rank == a->most_rank ? ", rank %g" : ", ranks %g to %g", a->least_rank,
                 a->most_rank);
        snprintf(scale, sizeof(scale),
                 a->least_scale == a->most_scale ? ", scale %g" : ", scales %g to %g",
                 a->least_scale, a->most_scale);
    }
    char text[300];
    snprintf(text, sizeof(text), "computed: %s by %s%s%s", wfs_count(a->n_pairs, "tensor").text,
             wfs_count(a->n_modules, "module").text, rank, scale);
    return a->request->note(a->request->ctx, a->request->path, text);
}

static bool has_product(const struct module *module)
{
    return module->leaves[LEAF_A] != NULL || module->leaves[LEAF_EMBEDDING_A] != NULL;
}

/* Returns whether the module has one of target_parameters. */
static bool has_parameter(const struct adapter *a, const struct module *module)
{
    const json_t *list = json_object_get(a->config.json, "target_parameters");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *target = json_string_value(json_array_get(list, i));
        const char *dot = target == NULL ? NULL : strrchr(target, '.');
        for (const char *at = module->name; dot != NULL && (at = strchr(at, '.')) != NULL; at++)
            if (strncmp(at + 1, target, (size_t)(dot - target)) == 0)
                return true;
    }
    return false;
}

/* Returns whether the module is meant by a name of target_modules. */
static bool has_target(const json_t *targets, const struct module *module)
{
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const char *target = json_string_value(json_array_get(targets, i));
        if (target != NULL && module_is_named(module, target))
            return true;
    }
    return false;
}

static bool is_found(const struct adapter *a, const char *target)
{
    for (size_t i = 0; i < a->n_modules; i++) {
        if (module_is_named(&a->modules[i], target))
            return true;
    }
    return false;
}

/*
 * The tensors of the file are what is applied; peft goes by target_modules, and leaves out the
 * others without a word. Both ways in which they can differ are notices.
 */
static int warn_targets(const struct adapter *a)
{
    enum { MOST_TARGETS = 1000 }; /* each is looked for in all modules */
    const json_t *targets = json_object_get(a->config.json, "target_modules");
    const size_t n = json_array_size(targets);
    size_t n_outside = 0;
    int code = 0;
    if (n == 0 || n > MOST_TARGETS)
        return 0;
    for (size_t i = 0; i < n && code == 0; i++) {
        const char *target = json_string_value(json_array_get(targets, i));
        if (target != NULL && !is_found(a, target))
            code = adapter_warn(a, "target_modules has '%s', and there are no factors for it",
                                wfs_quote(target).text);
    }
    for (size_t i = 0; i < a->n_modules; i++)
        n_outside += has_product(&a->modules[i]) && !has_target(targets, &a->modules[i]) &&
                     !has_parameter(a, &a->modules[i]);
    if (code == 0 && n_outside > 0)
        code = adapter_warn(a, "%s not in target_modules, where peft would leave the factors out",
                            wfs_count_as(n_outside, "module is", "modules are").text);
    return code;
}

/* Patterns that are for no module. */
static int warn_patterns(const struct adapter *a, const struct pattern *patterns, size_t n)
{
    int code = 0;
    for (size_t i = 0; i < n && code >= 0; i++) {
        bool is_used = false;
        for (size_t k = 0; k < a->n_modules && !is_used && code >= 0; k++) {
            code = regex_search(patterns[i].regex, a->modules[k].name, a->err);
            is_used = code > 0;
        }
        if (code >= 0 && !is_used)
            code = adapter_warn(a, "the pattern '%s' of adapter_config.json matches no module",
                                wfs_quote(patterns[i].key).text);
    }
    return code < 0 ? code : 0;
}

/* The name that its file or directory has. */
static const char *name_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    const char *slash = memrchr(path, '/', n);
    return slash == NULL || slash[1] == '\0' ? path : slash + 1;
}

int adapter_add(struct adapter_base *base, const struct adapter_request *request,
                const struct wfs_catalog *file, const char *config, struct wfs_error *err)
{
    struct adapter adapter = {.request = request,
                              .base = base,
                              .file = file,
                              .name = name_of(request->path),
                              .err = err,
                              .least_rank = INFINITY,
                              .least_scale = INFINITY,
                              .most_scale = -INFINITY};
    int code = adapter_config_read(&adapter, config);
    code = code < 0 ? code : adapter_parts_read(&adapter);
    code = code < 0 ? code : adapter_names_find(&adapter);
    for (size_t i = 0; i < adapter.n_modules && code == 0; i++)
        code = adapter_terms_take_copy(&adapter, &adapter.modules[i]);
    for (size_t i = 0; i < adapter.n_modules && code == 0; i++)
        code = adapter_terms_add(&adapter, &adapter.modules[i]);
    code = code < 0 ? code : warn_targets(&adapter);
    const struct adapter_config *c = &adapter.config;
    code = code < 0 ? code : warn_patterns(&adapter, c->ranks, c->n_ranks);
    code = code < 0 ? code : warn_patterns(&adapter, c->alphas, c->n_alphas);
    if (code == 0 && adapter.n_pairs == 0)
        code = wfs_fail(err, EINVAL, "adapter '%s' changes nothing", wfs_quote(request->path).text);
    code = code < 0 ? code : report(&adapter);
    adapter_config_done(&adapter.config);
    adapter_parts_done(&adapter);
    return code;
}
