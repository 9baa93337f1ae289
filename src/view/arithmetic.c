/* SPDX-License-Identifier: MIT */
/*
 * Sums of checkpoints, and adapters: directly after overlays, with the names of the files. Tensors
 * stay what they are (name, shape, dtype); what they show becomes a computation. All that is added
 * to one is added before it is rounded. First comes the mean, then what is added to that, then
 * adapters: each begins with the unrounded result of the one before.
 */
#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "compute/compute.h"
#include "remote/remote_source.h"
#include "tensor/tensor.h"
#include "view/adapter/adapter_base.h"
#include "view/pass.h"

/* Another checkpoint, which may be in several rules. */
struct other {
    const char *path;
    const struct wfs_catalog *catalog; /* a part of the whole */
    struct catalog_keys keys;
    const char *embedding; /* as that of struct adapter_base */
    size_t n_found;        /* its tensors that the source has, too */
};

struct arithmetic {
    struct pass *pass;
    const struct wfs_view_loader *loader;
    struct adapter_base base;
    struct other *others;
    size_t n_others, n_room;
    bool follows; /* what is computed for one name of a tensor is for all */
};

static void arithmetic_done(struct arithmetic *a)
{
    for (size_t i = 0; i < a->n_others; i++)
        catalog_keys_done(&a->others[i].keys);
    free(a->others);
    adapter_base_done(&a->base);
}

/* ---- other checkpoints ---- */

/* Loads the file of the rule, unless it is loaded. */
static int load(struct arithmetic *a, const struct rule *rule, struct other **ret)
{
    struct wfs_catalog *catalog = NULL;
    for (size_t i = 0; i < a->n_others; i++) {
        if (strcmp(a->others[i].path, rule->argument) == 0) {
            *ret = &a->others[i];
            return 0;
        }
    }
    if (array_reserve(&a->others, sizeof(*a->others), a->n_others, 1, &a->n_room) < 0)
        return wfs_fail_memory(a->pass->err);
    const int code = a->loader->load(a->loader->ctx, rule->argument, &catalog, a->pass->err);
    if (code < 0)
        return code;
    struct other *other = &a->others[a->n_others++];
    *other = (struct other){.path = rule->argument, .catalog = catalog};
    if (catalog_adopt_part(a->pass->catalog, catalog) < 0 ||
        catalog_keys_add(&other->keys, catalog, 0) < 0)
        return wfs_fail_memory(a->pass->err);
    other->embedding = adapter_find_embedding(catalog);
    *ret = other;
    return 0;
}

/* Returns its tensor of that key, or the embedding in place of a head that is tied to it. */
static const struct wfs_tensor *find(const struct other *other, const char *key)
{
    uint32_t i = catalog_keys_find(&other->keys, key);
    if (i == TEXT_INDEX_NONE && adapter_is_head(key) && other->embedding != NULL)
        i = catalog_keys_find(&other->keys, other->embedding);
    return i == TEXT_INDEX_NONE ? NULL : &other->catalog->tensors[i];
}

/* ---- one tensor ---- */

static int fail_tensor(const struct arithmetic *a, const struct rule *rule, const char *key,
                       const char *text)
{
    return wfs_fail(a->pass->err, EINVAL, "%s '%s': '%s' %s", rule->name,
                    wfs_quote(rule->argument).text, wfs_quote(key).text, text);
}

/* What is not computed has to be the same on both sides. */
static int compare(const struct arithmetic *a, const struct rule *rule,
                   const struct wfs_tensor *tensor, const struct wfs_tensor *other)
{
    uint64_t one, two;
    char text[200];
    int code = 0;
    if (tensor->dtype == other->dtype && tied_are_same(tensor, other))
        return 0;
    if (tensor->dtype == other->dtype) {
        code = wfs_tensor_digest(tensor, &one);
        code = code < 0 ? code : wfs_tensor_digest(other, &two);
        if (code == 0 && one == two)
            return 0;
    }
    if (code < 0)
        return fail_tensor(a, rule, tensor->key, "cannot be read");
    snprintf(
        text, sizeof(text),
        "is %s here and %s there, and differs: only F16, BF16, F32 and F64 are computed; leave "
        "it out with a regex",
        wfs_dtype_name((enum wfs_dtype)tensor->dtype),
        wfs_dtype_name((enum wfs_dtype)other->dtype));
    return fail_tensor(a, rule, tensor->key, text);
}

/* Finds the tensor of the other checkpoint that goes with one of the source. Returns 1, or 0 where
 * there is nothing to compute, or an error. */
static int match(const struct arithmetic *a, const struct rule *rule, struct other *other,
                 const struct wfs_tensor *tensor, const struct wfs_tensor **ret)
{
    char text[500], here[200], there[200];
    const int code = rule_takes(rule, tensor->key, a->pass->err);
    if (code <= 0)
        return code;
    *ret = find(other, tensor->key);
    if (*ret == NULL)
        return a->pass->view->is_partial
                   ? 0
                   : fail_tensor(a, rule, tensor->key,
                                 "is not in it; `partial` leaves it as it is");
    other->n_found++;
    if (!wfs_shape_is_equal(&tensor->shape, &(*ret)->shape)) {
        wfs_shape_format(&tensor->shape, here, sizeof(here));
        wfs_shape_format(&(*ret)->shape, there, sizeof(there));
        const bool has_rows = tensor->shape.rank == 2 && (*ret)->shape.rank == 2 &&
                              tensor->shape.dims[1] == (*ret)->shape.dims[1];
        snprintf(text, sizeof(text), "has another shape there: %s, here %s%s", there, here,
                 has_rows ? "; a conversion with slice can cut rows off first" : "");
        return fail_tensor(a, rule, tensor->key, text);
    }
    if (wfs_tensor_trouble(*ret) != NULL) {
        snprintf(text, sizeof(text), "cannot be read: %s", wfs_tensor_trouble(*ret));
        return fail_tensor(a, rule, tensor->key, text);
    }
    if (dtype_is_wide_float((enum wfs_dtype)tensor->dtype) &&
        dtype_is_wide_float((enum wfs_dtype)(*ret)->dtype))
        return 1;
    return compare(a, rule, tensor, *ret);
}

/* Adds a step to the computation of a tensor, which is new for the first one. */
static int add_step(struct arithmetic *a, size_t i, const struct compute_step *step,
                    const char *text)
{
    return adapter_base_add(&a->base, i, false, step, text, text) < 0
               ? wfs_fail_memory(a->pass->err)
               : 0;
}

/* A key of the other checkpoint that the source does not have is named, too. */
static int check_rest(const struct arithmetic *a, const struct rule *rule, struct other *other)
{
    if (a->pass->view->is_partial || other->n_found >= other->catalog->n_tensors)
        return 0;
    for (size_t i = 0; i < other->catalog->n_tensors; i++) {
        const char *key = other->catalog->tensors[i].key;
        const int code = rule_takes(rule, key, a->pass->err);
        if (code < 0)
            return code;
        if (code > 0 && catalog_keys_find(&a->base.keys, key) == TEXT_INDEX_NONE)
            return fail_tensor(a, rule, key,
                               adapter_is_head(key) && a->base.embedding != NULL
                                   ? "is in it, and the source has its embedding in its place: "
                                     "with the two files exchanged both are computed; `partial` "
                                     "ignores it"
                                   : "is in it, and not in the source; `partial` ignores it");
    }
    return 0;
}

static int fail_unmatched(const struct arithmetic *a, const struct rule *rule)
{
    return wfs_fail(a->pass->err, EINVAL, "%s '%s': it changes no tensor", rule->name,
                    wfs_quote(rule->argument).text);
}

/* ---- what is added ---- */

static enum compute_kind kind_of(const struct rule *rule)
{
    switch (rule->kind) {
    case RULE_TASK:
        return COMPUTE_TOWARDS;
    case RULE_SLERP:
        return COMPUTE_SLERP;
    default:
        return COMPUTE_ADD;
    }
}

static int add_file(struct arithmetic *a, const struct rule *rule)
{
    struct wfs_catalog *catalog = a->pass->catalog;
    struct other *other = NULL;
    size_t n_changed = 0;
    const char *text = arena_print(&catalog->arena, "%s %s * %.6g", rule->name,
                                   wfs_quote(rule->argument).text, rule->weight);
    int code = text == NULL ? wfs_fail_memory(a->pass->err) : load(a, rule, &other);
    for (size_t i = 0; i < catalog->n_tensors && code >= 0; i++) {
        struct compute_step step = {.kind = kind_of(rule),
                                    .scale =
                                        rule->kind == RULE_MINUS ? -rule->weight : rule->weight};
        const struct wfs_tensor *found = NULL;
        code = match(a, rule, other, &catalog->tensors[i], &found);
        if (code <= 0)
            continue;
        step.a.left = *found;
        code = add_step(a, i, &step, text);
        n_changed++;
    }
    if (code >= 0 && n_changed == 0)
        return fail_unmatched(a, rule);
    return code < 0 ? code : check_rest(a, rule, other);
}

/* ---- the mean ---- */

/* Returns whether an earlier rule names the same file. */
static bool is_repeated(const struct wfs_view *view, const struct rule *rule)
{
    const struct rule *before = rule_next(view->rules, RULE_AVERAGE);
    while (before != rule && strcmp(before->argument, rule->argument) != 0)
        before = rule_next(before->next, RULE_AVERAGE);
    return before != rule;
}

/* Finds the first rule of the same kind (and file) that takes the key; NULL: none does. */
static int find_rule(const struct arithmetic *a, enum rule_kind kind, const char *file,
                     const char *key, const struct rule **ret)
{
    *ret = NULL;
    for_rules(rule, a->pass->view, kind)
    {
        if (file != NULL && strcmp(rule->argument, file) != 0)
            continue;
        const int code = rule_takes(rule, key, a->pass->err);
        if (code > 0)
            *ret = rule;
        if (code != 0)
            return code < 0 ? code : 0;
    }
    return 0;
}

struct mean {
    const struct rule *rules[64];
    const struct wfs_tensor *tensors[64];
    size_t n;
    double own, sum;
};

/* Finds what the mean of a tensor is made of. */
static int gather_mean(struct arithmetic *a, const struct wfs_tensor *tensor, struct mean *mean)
{
    const struct rule *own;
    int code = find_rule(a, RULE_WEIGHT, NULL, tensor->key, &own);
    *mean = (struct mean){.own = own == NULL ? 1 : own->weight};
    mean->sum = mean->own;
    if (own != NULL)
        pass_use(a->pass, own);
    for_rules(rule, a->pass->view, RULE_AVERAGE)
    {
        const struct rule *taking = NULL;
        struct other *other = NULL;
        const struct wfs_tensor *found = NULL;
        if (code < 0 || is_repeated(a->pass->view, rule))
            continue;
        code = find_rule(a, RULE_AVERAGE, rule->argument, tensor->key, &taking);
        if (code < 0 || taking == NULL)
            continue;
        if (mean->n == sizeof(mean->rules) / sizeof(*mean->rules))
            return wfs_fail(a->pass->err, E2BIG, "a mean of more than %s",
                            wfs_count(mean->n, "file").text);
        code = load(a, taking, &other);
        code = code < 0 ? code : match(a, taking, other, tensor, &found);
        if (code <= 0)
            continue;
        mean->rules[mean->n] = taking;
        mean->tensors[mean->n++] = found;
        mean->sum += taking->weight;
    }
    return code < 0 ? code : 0;
}

static int average_tensor(struct arithmetic *a, size_t i, size_t *n_changed)
{
    struct mean mean;
    const struct wfs_tensor *tensor = &a->pass->catalog->tensors[i];
    int code = gather_mean(a, tensor, &mean);
    if (code < 0 || mean.n == 0)
        return code;
    if (mean.sum == 0)
        return fail_tensor(a, mean.rules[0], tensor->key, "has weights whose sum is 0");
    const struct compute_step scale = {.kind = COMPUTE_SCALE, .scale = mean.own / mean.sum};
    code =
        add_step(a, i, &scale, arena_print(&a->pass->catalog->arena, "average of %zu", mean.n + 1));
    for (size_t k = 0; k < mean.n && code == 0; k++) {
        struct compute_step step = {.kind = COMPUTE_ADD, .scale = mean.rules[k]->weight / mean.sum};
        step.a.left = *mean.tensors[k];
        code = add_step(a, i, &step, NULL);
    }
    ++*n_changed;
    return code;
}

/* The weight of the source itself in a sum without a mean. */
static int weigh(struct arithmetic *a)
{
    int code = 0;
    for (size_t i = 0; i < a->pass->catalog->n_tensors && code == 0; i++) {
        const struct wfs_tensor *tensor = &a->pass->catalog->tensors[i];
        const struct rule *rule = NULL;
        code = dtype_is_wide_float((enum wfs_dtype)tensor->dtype)
                   ? find_rule(a, RULE_WEIGHT, NULL, tensor->key, &rule)
                   : 0;
        if (rule == NULL || code < 0)
            continue;
        pass_use(a->pass, rule);
        const struct compute_step step = {.kind = COMPUTE_SCALE, .scale = rule->weight};
        code = add_step(a, i, &step,
                        arena_print(&a->pass->catalog->arena, "weight %.6g", rule->weight));
    }
    return code;
}

static int average(struct arithmetic *a)
{
    const struct rule *first = rule_next(a->pass->view->rules, RULE_AVERAGE);
    size_t n_changed = 0;
    int code = 0;
    for (size_t i = 0; i < a->pass->catalog->n_tensors && first != NULL && code == 0; i++)
        code = average_tensor(a, i, &n_changed);
    if (code == 0 && first != NULL && n_changed == 0)
        return fail_unmatched(a, first);
    for_rules(rule, a->pass->view, RULE_AVERAGE)
    {
        struct other *other = NULL;
        code = code < 0 ? code : load(a, rule, &other);
        code = code < 0 ? code : check_rest(a, rule, other);
    }
    return code;
}

/* ---- adapters ---- */

static int rename_module(void *ctx, const char *name, struct arena *arena, const char **ret,
                         struct wfs_error *err)
{
    const struct arithmetic *a = ctx;
    *ret = name;
    for_rules(rule, a->pass->view, RULE_LORA_REMAP)
    {
        const int code = regex_replace(rule->regex, *ret, rule->argument, arena, ret, err);
        if (code < 0)
            return code;
        if (code > 0)
            pass_use(a->pass, rule);
    }
    return 0;
}

static int warn(void *ctx, const char *about, const char *text)
{
    const struct arithmetic *a = ctx;
    return pass_warn(a->pass, about, "%s", text);
}

static int note(void *ctx, const char *about, const char *text)
{
    const struct arithmetic *a = ctx;
    report_add(a->pass->report, REPORT_NOTICES, about, text);
    return 0;
}

/* The same as text_file_read, for a URL. *ret stays NULL where there is no such object. */
static int read_url(const struct arithmetic *a, const char *url, char **ret)
{
    enum { MAX_BYTES = 16 << 20 };
    struct source *source = NULL;
    struct wfs_error inner = {0};
    int code = remote_source_open(a->loader->remote, url, &source, &inner);
    if (code == -ENOENT)
        return 0;
    if (code == 0 && source->n_bytes > MAX_BYTES)
        code = wfs_fail(&inner, E2BIG, "it is larger than %d bytes", MAX_BYTES);
    autofree char *text = code < 0 ? NULL : calloc(1, (size_t)source->n_bytes + 1);
    if (code == 0)
        code = text == NULL ? -ENOMEM : source_read(source, 0, text, (size_t)source->n_bytes);
    source_free(source);
    if (code < 0)
        return wfs_fail(a->pass->err, -code, "cannot read the configuration '%s': %s",
                        wfs_quote(url).text, inner.code != 0 ? inner.text : strerror(-code));
    *ret = steal(&text);
    return 0;
}

/* Reads the configuration beside the tensors: in a directory, or with a file that is called as one
 * in such a directory. *ret is malloc'ed, NULL where there is none. */
static int read_config(const struct arithmetic *a, const struct rule *rule, char **ret)
{
    struct stat st;
    const char *path = rule->argument, *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    const bool is_directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    autofree char *config = NULL;
    size_t n;
    if (rule->config != NULL)
        return read_url(a, rule->config, ret);
    if (!is_directory && strncmp(name, "adapter", strlen("adapter")) != 0)
        return 0;
    if ((is_directory
             ? asprintf(&config, "%s/adapter_config.json", path)
             : asprintf(&config, "%.*sadapter_config.json", (int)(name - path), path)) < 0) {
        config = NULL;
        return wfs_fail_memory(a->pass->err);
    }
    return stat(config, &st) < 0 ? 0
                                 : text_file_read("configuration", config, ret, &n, a->pass->err);
}

static int add_adapter(struct arithmetic *a, const struct rule *rule)
{
    autofree char *config = NULL;
    struct wfs_catalog *catalog = NULL;
    int code = read_config(a, rule, &config);
    code =
        code < 0 ? code : a->loader->load(a->loader->ctx, rule->argument, &catalog, a->pass->err);
    if (code < 0)
        return code;
    if (catalog_adopt_part(a->pass->catalog, catalog) < 0)
        return wfs_fail_memory(a->pass->err);
    const struct adapter_request request = {.path = rule->argument,
                                            .weight = rule->weight,
                                            .regex = rule->regex,
                                            .is_negated = rule->is_negated,
                                            .part = a->pass->view->lora_part,
                                            .alpha = a->pass->view->lora_alpha,
                                            .rename = rename_module,
                                            .warn = warn,
                                            .note = note,
                                            .ctx = a};
    return adapter_add(&a->base, &request, catalog, config, a->pass->err);
}

/* A tensor with two names gets what is for one of them, unless a regex has chosen the key. */
static int add_adapters(struct arithmetic *a)
{
    bool can_follow = rule_next(a->pass->view->rules, RULE_LORA) != NULL;
    int code = 0;
    for_rules(rule, a->pass->view, RULE_LORA)
    {
        code = code < 0 ? code : add_adapter(a, rule);
        can_follow = can_follow && rule->regex == NULL;
    }
    a->follows = can_follow;
    return code;
}

/* ---- all ---- */

/* What follows begins with the results, of which those of tied tensors are tied where they are the
 * same. */
static int end_stage(struct arithmetic *a, int code)
{
    struct wfs_tensor *tensors = a->pass->catalog->tensors;
    struct compute_untied untied = {0};
    if (code == 0 &&
        (adapter_base_grow(&a->base) < 0 || compute_tie(tensors, a->pass->catalog->n_tensors,
                                                        a->base.computed, a->follows, &untied) < 0))
        return wfs_fail_memory(a->pass->err);
    memset(a->base.computed, 0, a->base.n_computed * sizeof(*a->base.computed));
    return code < 0 || untied.n == 0
               ? code
               : pass_warn(a->pass, tensors[untied.two].key,
                           "is not tied to '%s' any more%s: what is added to the two differs",
                           wfs_quote(tensors[untied.one].key).text, pass_more(untied.n).text);
}

int arithmetic_apply(struct pass *pass, const struct wfs_view_loader *loader)
{
    cleanup(arithmetic_done) struct arithmetic a = {.pass = pass, .loader = loader};
    bool is_asked = false;
    for (const struct rule *rule = pass->view->rules; rule != NULL; rule = rule->next)
        is_asked = is_asked || rule->kind == RULE_WEIGHT ||
                   (rule_has_file(rule->kind) && rule->kind != RULE_OVERLAY);
    if (!is_asked)
        return 0;
    if (adapter_base_init(&a.base, pass->catalog) < 0)
        return wfs_fail_memory(pass->err);
    int code = rule_next(pass->view->rules, RULE_AVERAGE) != NULL ? average(&a) : weigh(&a);
    code = end_stage(&a, code);
    for (const struct rule *rule = pass->view->rules; rule != NULL && code == 0;
         rule = rule->next) {
        if (rule->kind == RULE_ADD || rule->kind == RULE_MINUS || rule->kind == RULE_TASK ||
            rule->kind == RULE_SLERP)
            code = add_file(&a, rule);
    }
    code = end_stage(&a, code);
    code = code < 0 ? code : add_adapters(&a);
    code = end_stage(&a, code);
    return code < 0 ? code : pass->report->has_failed ? wfs_fail_memory(pass->err) : 0;
}
