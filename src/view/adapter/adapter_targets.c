/* SPDX-License-Identifier: MIT */
/*
 * Which tensors of the base a module is for, and what it does to each.
 */
#include "view/adapter/term.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- whole tensors ---- */

/* Checks that the elements of a tensor can be shown in the dtype of the one that it replaces. */
static int check_dtype(const struct term *t, const struct wfs_tensor *whole)
{
    const enum wfs_dtype is = (enum wfs_dtype)whole->dtype,
                         base = (enum wfs_dtype)term_base(t)->dtype;
    return is == base || (dtype_is_wide_float(is) && dtype_is_wide_float(base))
               ? 0
               : adapter_fail(t->adapter, EINVAL, whole->key, "is %s, and '%s' of the base %s",
                              wfs_dtype_name(is), wfs_quote(t->key).text, wfs_dtype_name(base));
}

/* Replaces the tensor of the base, in its dtype. */
static int replace(struct term *t, const struct wfs_tensor *whole)
{
    struct adapter *adapter = t->adapter;
    struct wfs_tensor *base = term_base(t);
    const uint8_t dtype = base->dtype;
    const bool is_resized = !wfs_shape_is_equal(&base->shape, &whole->shape);
    if (base->shape.rank != whole->shape.rank)
        return term_fail_shape(t, whole, "");
    int code = check_dtype(t, whole);
    if (code == 0 && is_resized) {
        char was[200];
        wfs_shape_format(&(base)->shape, was, sizeof(was));
        char is[200];
        wfs_shape_format(&(whole)->shape, is, sizeof(is));
        code = adapter_warn(adapter,
                            "'%s' has another shape, %s in place of %s: config.json has to "
                            "follow (vocab_size)",
                            wfs_quote(t->key).text, is, was);
    }
    if (code < 0)
        return code;
    base->shape = whole->shape;
    base->stored = whole->stored;
    base->dtype = dtype;
    base->trouble = whole->trouble;
    if (wfs_shape_bytes(&base->shape, (enum wfs_dtype)dtype, &base->n_bytes) < 0)
        return term_fail_shape(t, whole, "");
    struct arena *arena = &adapter->base->catalog->arena;
    base->changes = arena_print(arena, "lora %s (whole)", wfs_quote(adapter->name).text);
    adapter->base->computed[t->at] = NULL;
    adapter->n_pairs++;
    return base->changes == NULL ? wfs_fail_memory(adapter->err) : 0;
}

/* Adds a tensor that the base does not have: a head that was tied. */
static int add_head(struct term *t, const struct wfs_tensor *whole)
{
    struct adapter_base *base = t->adapter->base;
    struct wfs_tensor *added = catalog_add(base->catalog);
    if (added == NULL)
        return wfs_fail_memory(t->adapter->err);
    *added = *whole;
    added->key = t->key;
    added->origin = NULL;
    added->attrs = NULL;
    added->place = 0;
    added->changes =
        arena_print(&base->catalog->arena, "lora %s (whole)", wfs_quote(t->adapter->name).text);
    if (added->changes == NULL || adapter_base_grow(base) < 0)
        return wfs_fail_memory(t->adapter->err);
    t->adapter->n_pairs++;
    return adapter_warn(t->adapter,
                        "'%s' is added, which the base does not have: config.json needs "
                        "tie_word_embeddings false",
                        wfs_quote(t->key).text);
}

/* ---- which tensor a module is for ---- */

/* The name without the wrappers that peft puts around a module. */
static const char *cut_wrappers(struct term *t, unsigned *ret_depth)
{
    static const char inner[] = ".base_layer";
    size_t n = strlen(t->module->name);
    *ret_depth = 0;
    while (n > strlen(inner) &&
           memcmp(t->module->name + n - strlen(inner), inner, strlen(inner)) == 0) {
        n -= strlen(inner);
        ++*ret_depth;
    }
    return arena_copy(&t->adapter->base->catalog->arena, t->module->name, n);
}

/* Returns whether the factors fit a tensor of experts. */
static bool fits_experts(const struct term *t, const struct wfs_tensor *base)
{
    const struct wfs_tensor *a = term_leaf(t, LEAF_A), *b = term_leaf(t, LEAF_B);
    if (a == NULL || b == NULL || base->shape.rank != 3)
        return false;
    return (tensor_dim(base, 1) == tensor_dim(b, 0) && tensor_dim(base, 2) == tensor_below(a)) ||
           (tensor_dim(base, 1) == tensor_below(a) && tensor_dim(base, 2) == tensor_dim(b, 0));
}

/*
 * Finds the parameter among those of target_parameters. The order of several is that of the module,
 * which no file has: the one whose shape fits, and if two do, the inner wrapper is for the name
 * with `gate_up`.
 */
static int find_parameter(struct term *t, const char *name, unsigned depth)
{
    const json_t *list = json_object_get(t->adapter->config.json, "target_parameters");
    struct arena *arena = &t->adapter->base->catalog->arena;
    t->at = TEXT_INDEX_NONE;
    const char *fallback = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        const char *dot = text == NULL ? NULL : strrchr(text, '.');
        const char *key =
            text == NULL ? NULL : arena_print(arena, "%s.%s", name, dot == NULL ? text : dot + 1);
        const uint32_t at = key == NULL ? TEXT_INDEX_NONE : adapter_find(t->adapter, key);
        if (at == TEXT_INDEX_NONE)
            continue;
        fallback = key;
        const struct wfs_tensor *base = &t->adapter->base->catalog->tensors[at];
        const bool is_fitting = base->shape.rank == 3 ? fits_experts(t, base) : true;
        const bool is_inner = strstr(key, "gate_up") != NULL;
        if (is_fitting && (t->at == TEXT_INDEX_NONE || is_inner == (depth > 0))) {
            t->at = at;
            t->key = key;
        }
    }
    if (t->at != TEXT_INDEX_NONE)
        return 0;
    if (fallback == NULL || term_leaf(t, LEAF_A) == NULL)
        return adapter_fail(t->adapter, EINVAL, t->module->typed, "is not in the base");
    t->key = fallback;
    t->at = adapter_find(t->adapter, fallback);
    return term_fail_shape(t, term_leaf(t, LEAF_A), "");
}

/* Finds the weight that the module is added to. *ret_is_tied: it stands for a head that is not
 * there. */
static int find_weight(struct term *t, bool *ret_is_tied, bool *ret_is_parameter)
{
    struct arena *arena = &t->adapter->base->catalog->arena;
    unsigned depth;
    const char *name = cut_wrappers(t, &depth);
    const char *key = name == NULL ? NULL : arena_print(arena, "%s.weight", name);
    if (key == NULL)
        return wfs_fail_memory(t->adapter->err);
    *ret_is_tied = false;
    *ret_is_parameter = false;
    t->key = key;
    t->at = adapter_find(t->adapter, key);
    if (t->at != TEXT_INDEX_NONE)
        return 0;
    const char *tied = adapter_find_tied(t->adapter, key);
    if (tied != NULL) {
        *ret_is_tied = true;
        t->at = adapter_find(t->adapter, tied);
        return 0;
    }
    if (term_leaf(t, LEAF_WHOLE_BIAS) != NULL)
        return 0;
    *ret_is_parameter = true;
    return find_parameter(t, name, depth);
}

static int replace_bias(struct term *t)
{
    const char *key = arena_print(&t->adapter->base->catalog->arena, "%s.bias", t->module->name);
    if (key == NULL)
        return wfs_fail_memory(t->adapter->err);
    t->at = adapter_find(t->adapter, key);
    t->key = key;
    return t->at == TEXT_INDEX_NONE
               ? adapter_fail(t->adapter, EINVAL, term_leaf(t, LEAF_WHOLE_BIAS)->key,
                              "is for '%s', which the base does not have", wfs_quote(key).text)
               : replace(t, term_leaf(t, LEAF_WHOLE_BIAS));
}

static int add_biases(struct term *t)
{
    const struct wfs_tensor *bias = term_leaf(t, LEAF_B_BIAS), *diff = term_leaf(t, LEAF_DIFF_B);
    const double scale = diff != NULL ? t->adapter->request->weight : t->scale;
    if (bias == NULL && diff == NULL)
        return 0;
    const struct wfs_tensor *added = diff != NULL ? diff : bias;
    if (!term_find_bias(t))
        return adapter_fail(t->adapter, EINVAL, added->key,
                            "is for a bias, which '%s' does not have",
                            wfs_quote(t->module->name).text);
    t->is_batch = false;
    return term_add_whole(t, added, scale, diff != NULL ? "diff_b" : "lora_B.bias");
}

/* Adds the factors of the module to its weight. */
static int add_factors(struct term *t, bool is_parameter)
{
    t->step = (struct compute_step){.kind = COMPUTE_ADD};
    if (is_parameter && term_base(t)->shape.rank == 3)
        return term_add_experts(t);
    if (term_leaf(t, LEAF_EMBEDDING_A) != NULL || term_leaf(t, LEAF_EMBEDDING_B) != NULL)
        return term_add_embedding(t);
    if (term_leaf(t, LEAF_MLX_A) != NULL || term_leaf(t, LEAF_MLX_B) != NULL)
        return term_add_mlx(t);
    if (term_leaf(t, LEAF_HADA_W1A) != NULL || term_leaf(t, LEAF_HADA_W2A) != NULL ||
        term_leaf(t, LEAF_HADA_W1B) != NULL || term_leaf(t, LEAF_HADA_W2B) != NULL)
        return term_add_loha(t);
    if (term_leaf(t, LEAF_LOKR_W1) != NULL || term_leaf(t, LEAF_LOKR_W1A) != NULL ||
        term_leaf(t, LEAF_LOKR_W2) != NULL || term_leaf(t, LEAF_LOKR_W2A) != NULL)
        return term_add_lokr(t);
    if (term_leaf(t, LEAF_IA3) != NULL)
        return term_add_ia3(t);
    if (term_leaf(t, LEAF_OFT) != NULL)
        return term_add_oft(t);
    if (term_leaf(t, LEAF_VERA_B) != NULL || term_leaf(t, LEAF_VERA_D) != NULL)
        return term_add_vera(t);
    if (term_leaf(t, LEAF_DIFF) != NULL)
        return term_add_whole(t, term_leaf(t, LEAF_DIFF), t->adapter->request->weight, "diff");
    return term_add_pair(t);
}

static bool has_factors(const struct module *module)
{
    for (int i = 0; i < LEAF_TOKENS; i++) {
        if (module->leaves[i] != NULL)
            return true;
    }
    return false;
}

int adapter_terms_take_copy(struct adapter *adapter, struct module *module)
{
    struct term t = {.adapter = adapter, .module = module};
    const struct wfs_tensor *copy = term_leaf(&t, LEAF_BASE);
    bool is_tied, is_parameter;
    int code = copy == NULL ? 0 : find_weight(&t, &is_tied, &is_parameter);
    if (copy == NULL || code < 0 || is_tied || (code = term_is_wanted(&t, t.key)) <= 0)
        return code;
    struct wfs_tensor *base = term_base(&t);
    if (!wfs_shape_is_equal(&base->shape, &copy->shape))
        return term_fail_shape(&t, copy, "");
    if ((code = check_dtype(&t, copy)) < 0)
        return code;
    if (adapter->base->computed[t.at] != NULL)
        return adapter_fail(adapter, EINVAL, copy->key,
                            "replaces '%s', which another adapter has changed",
                            wfs_quote(t.key).text);
    base->stored = copy->stored;
    return adapter_warn(adapter, "'%s' is a copy of its own, in place of that of the base",
                        wfs_quote(t.key).text);
}

static int check_used(const struct adapter *adapter, const struct module *module)
{
    for (int i = 0; i < N_LEAVES; i++) {
        if (module->leaves[i] != NULL && (module->used >> i & 1) == 0)
            return adapter_fail(adapter, EINVAL, module->leaves[i]->key,
                                "does not go with the other factors of its module");
    }
    return 0;
}

int adapter_terms_add(struct adapter *adapter, struct module *module)
{
    struct term t = {.adapter = adapter, .module = module, .scale = adapter->request->weight};
    struct slices slices;
    bool is_tied, is_parameter;
    if (adapter_slices_find(adapter, module->name, &slices)) {
        const int code = term_add_slices(&t, &slices);
        return code < 0 ? code : check_used(adapter, module);
    }
    int code = find_weight(&t, &is_tied, &is_parameter);
    if (code < 0)
        return code;
    if (t.at == TEXT_INDEX_NONE)
        return replace_bias(&t);
    code = term_is_wanted(&t, t.key);
    if (code <= 0)
        return code;
    if (is_tied && adapter->config.has_tied_weights)
        return 0; /* the embedding's own factors, saved again */
    code = 0;
    const char *weight = t.key;
    const uint32_t at = t.at;
    if (is_tied && term_leaf(&t, LEAF_WHOLE) != NULL)
        return add_head(&t, term_leaf(&t, LEAF_WHOLE));
    if (term_leaf(&t, LEAF_WHOLE) != NULL)
        code = replace(&t, term_leaf(&t, LEAF_WHOLE));
    if (code == 0 && has_factors(module)) {
        code = add_factors(&t, is_parameter);
        term_note_scale(&t);
    }
    t.key = weight;
    t.at = at;
    if (code == 0 && term_leaf(&t, LEAF_TOKENS) != NULL)
        code = term_add_tokens(&t);
    t.key = weight;
    t.at = at;
    code = code < 0 ? code : add_biases(&t);
    if (code == 0 && term_leaf(&t, LEAF_WHOLE_BIAS) != NULL)
        code = replace_bias(&t);
    return code < 0 || is_tied ? code : check_used(adapter, module);
}
