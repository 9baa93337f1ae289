/* SPDX-License-Identifier: MIT */
/*
 * adapter_config.json, of peft and of MLX. The parser refuses Infinity and NaN, which Python's json
 * writes.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"
#include "view/adapter/parts.h"

/* What peft can do that does not come out as a sum with the weights. */
static const struct {
    const char *key, *why;
} unmergeable[] = {
    {"kasa_config", "it cuts the base by a singular value decomposition first"},
    {"arrow_config", "it chooses among adapters for each token"},
    {"alora_invocation_tokens", "it is active for some tokens only"},
    {"use_qalora", "its groups are for quantized weights"},
    {"use_bdlora", "its factors are block-diagonal"},
    {"monteclora_config", "it is drawn at random"},
    {"velora_config", "it is not a product of two factors"},
    {"layer_replication", "it repeats layers of the base"},
    {"coft", "its rotations are projected"},
};

/* Members of the configurations of the methods that are merged. */
static const char *const known_keys[] = {"alora_invocation_tokens",
                                         "alpha",
                                         "alpha_pattern",
                                         "arrow_config",
                                         "auto_mapping",
                                         "base_model_name_or_path",
                                         "beta1",
                                         "beta2",
                                         "bias",
                                         "block_share",
                                         "coft",
                                         "corda_config",
                                         "d_initial",
                                         "decompose_both",
                                         "decompose_factor",
                                         "deltaT",
                                         "ensure_weight_tying",
                                         "eps",
                                         "eva_config",
                                         "exclude_modules",
                                         "fan_in_fan_out",
                                         "feedforward_modules",
                                         "inference_mode",
                                         "init_ia3_weights",
                                         "init_lora_weights",
                                         "init_r",
                                         "init_weights",
                                         "kasa_config",
                                         "layer_replication",
                                         "layers_pattern",
                                         "layers_to_transform",
                                         "loftq_config",
                                         "lora_alpha",
                                         "lora_bias",
                                         "lora_dropout",
                                         "lora_ga_config",
                                         "megatron_config",
                                         "megatron_core",
                                         "module_dropout",
                                         "modules_to_save",
                                         "monteclora_config",
                                         "num_cayley_neumann_terms",
                                         "oft_block_size",
                                         "orth_reg_weight",
                                         "peft_type",
                                         "peft_version",
                                         "projection_prng_key",
                                         "qalora_group_size",
                                         "r",
                                         "rank_dropout",
                                         "rank_dropout_scale",
                                         "rank_pattern",
                                         "revision",
                                         "runtime_config",
                                         "save_projection",
                                         "target_modules",
                                         "target_parameters",
                                         "target_r",
                                         "task_type",
                                         "tfinal",
                                         "tinit",
                                         "total_step",
                                         "trainable_token_indices",
                                         "use_bdlora",
                                         "use_cayley_neumann",
                                         "use_dora",
                                         "use_effective_conv2d",
                                         "use_qalora",
                                         "use_rslora",
                                         "velora_config",
                                         "vera_dropout"};

static const char *const methods[] = {"LORA", "ADALORA", "LOHA", "LOKR", "IA3", "OFT", "VERA"};

enum { MOST_PATTERNS = 4096, MOST_PARAMETERS = 256 }; /* each is tried for each module */

static bool is_set(const json_t *value)
{
    return value != NULL && !json_is_null(value) && !json_is_false(value) &&
           !(json_is_array(value) && json_array_size(value) == 0) &&
           !(json_is_object(value) && json_object_size(value) == 0);
}

static bool flag(const json_t *json, const char *name)
{
    return json_is_true(json_object_get(json, name));
}

static double number(const json_t *json, const char *name)
{
    const json_t *value = json_object_get(json, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Returns where the configuration stands. */
static const char *place_of(const struct adapter *adapter)
{
    return adapter->config.form == FORM_DIFFUSERS ? "lora_adapter_metadata" : "adapter_config.json";
}

static int fail_config(const struct adapter *adapter, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail_config(const struct adapter *adapter, int code, const char *format, ...)
{
    char text[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    return wfs_fail(adapter->err, code, "adapter '%s': %s: %s",
                    wfs_quote(adapter->request->path).text, place_of(adapter), text);
}

/* Reads an object of regular expressions and numbers. */
static int read_patterns(struct adapter *adapter, const char *name, struct pattern **ret,
                         size_t *ret_n)
{
    const json_t *object = json_object_get(adapter->config.json, name);
    const char *key;
    json_t *value;
    if (!is_set(object))
        return 0;
    if (!json_is_object(object))
        return fail_config(adapter, EBADMSG, "'%s' is not an object", name);
    if (json_object_size(object) > MOST_PATTERNS)
        return fail_config(adapter, E2BIG, "'%s' has more than %d patterns", name, MOST_PATTERNS);
    *ret = calloc(json_object_size(object), sizeof(**ret));
    if (*ret == NULL)
        return wfs_fail_memory(adapter->err);
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        char *text = NULL;
        if (!json_is_number(value))
            return fail_config(adapter, EBADMSG, "'%s' of '%s' is not a number",
                               wfs_quote(key).text, name);
        struct pattern *pattern = &(*ret)[*ret_n];
        pattern->key = key;
        pattern->value = json_number_value(value);
        if (asprintf(&text, "^(?:.*\\.)?(?:%s)$", key) < 0)
            return wfs_fail_memory(adapter->err);
        struct wfs_error err = {0};
        const int code = regex_new(text, &pattern->regex, &err);
        free(text);
        if (code < 0)
            return fail_config(adapter, -code, "'%s': %s", name, err.text);
        ++*ret_n;
    }
    return 0;
}

static int warn_unknown(struct adapter *adapter)
{
    const char *key;
    json_t *value;
    int code = 0;
    json_object_foreach(adapter->config.json, key, value)
    {
        bool is_known = !is_set(value);
        for (size_t i = 0; i < sizeof(known_keys) / sizeof(*known_keys); i++)
            is_known = is_known || strcmp(known_keys[i], key) == 0;
        if (!is_known && code == 0)
            code = adapter_warn(adapter, "'%s' of %s is not known, and ignored",
                                wfs_quote(key).text, place_of(adapter));
    }
    return code;
}

/* The base that some ways to begin have changed. */
static int warn_init(struct adapter *adapter)
{
    static const char *const changing[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    const char *how = json_string_value(json_object_get(adapter->config.json, "init_lora_weights"));
    for (size_t i = 0; how != NULL && i < sizeof(changing) / sizeof(*changing); i++) {
        if (strncasecmp(how, changing[i], strlen(changing[i])) == 0)
            return adapter_warn(adapter,
                                "init_lora_weights is '%s', which changes the base: added to the "
                                "published one, it is right only if it was converted when it was "
                                "saved",
                                wfs_quote(how).text);
    }
    return 0;
}

static int read_peft(struct adapter *adapter)
{
    struct adapter_config *c = &adapter->config;
    bool is_known = false;
    for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
        is_known = is_known || strcmp(methods[i], c->method) == 0;
    if (!is_known)
        return fail_config(adapter, EOPNOTSUPP,
                           "peft_type '%s' cannot be merged here; LORA, ADALORA, LOHA, LOKR, IA3, "
                           "OFT and VERA can",
                           wfs_quote(c->method).text);
    for (size_t i = 0; i < sizeof(unmergeable) / sizeof(*unmergeable); i++) {
        if (is_set(json_object_get(c->json, unmergeable[i].key)))
            return fail_config(adapter, EOPNOTSUPP, "'%s' cannot be merged: %s", unmergeable[i].key,
                               unmergeable[i].why);
    }
    if (json_array_size(json_object_get(c->json, "target_parameters")) > MOST_PARAMETERS)
        return fail_config(adapter, E2BIG, "'target_parameters' has more than %d names",
                           MOST_PARAMETERS);
    c->rank = number(c->json, "r");
    c->alpha = number(c->json, "lora_alpha");
    c->alpha = isnan(c->alpha) ? number(c->json, "alpha") : c->alpha;
    c->has_rslora = flag(c->json, "use_rslora");
    c->has_dora = flag(c->json, "use_dora");
    c->is_fan_in = flag(c->json, "fan_in_fan_out");
    c->has_tied_weights = flag(c->json, "ensure_weight_tying");
    const bool has_masks = strcmp(c->method, "ADALORA") == 0; /* by name, in its rank_pattern */
    int code = has_masks ? 0 : read_patterns(adapter, "rank_pattern", &c->ranks, &c->n_ranks);
    code = code < 0 ? code : read_patterns(adapter, "alpha_pattern", &c->alphas, &c->n_alphas);
    code = code < 0 ? code : warn_unknown(adapter);
    return code < 0 ? code : warn_init(adapter);
}

static int read_mlx(struct adapter *adapter)
{
    struct adapter_config *c = &adapter->config;
    c->form = FORM_MLX;
    c->scale = number(json_object_get(c->json, "lora_parameters"), "scale");
    c->has_dora = strcmp(c->method, "dora") == 0;
    if (strcmp(c->method, "full") == 0 || strcmp(c->method, "lora") == 0 || c->has_dora)
        return 0;
    return fail_config(adapter, EOPNOTSUPP, "fine_tune_type '%s' cannot be merged here",
                       wfs_quote(c->method).text);
}

static int fail_without(const struct adapter *adapter, const char *what, const char *advice)
{
    return wfs_fail(adapter->err, EINVAL,
                    "adapter '%s' has no adapter_config.json, which has its %s: %s",
                    wfs_quote(adapter->request->path).text, what, advice);
}

/* Finds out whose names the keys are: those of kohya have no dot in the name of the module. */
static int guess_form(struct adapter *adapter)
{
    const struct wfs_catalog *file = adapter->file;
    adapter->config.form = FORM_DIFFUSERS;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *key = file->tensors[i].key, *dot = strrchr(key, '.');
        if (strncmp(key, "base_model.model.", 17) == 0) {
            adapter->config.form = FORM_PEFT;
            adapter->config.method = "LORA";
            return isnan(adapter->request->alpha)
                       ? fail_without(adapter, "alpha", "state lora_alpha=N")
                       : 0;
        }
        if (dot != NULL && strcmp(dot, ".lora_a") == 0)
            return fail_without(adapter, "scale", "it is beside the file that MLX writes");
        if (dot != NULL && (strncmp(key, "lora_", 5) == 0 || strncmp(key, "lycoris_", 8) == 0))
            adapter->config.form = FORM_KOHYA;
    }
    return 0;
}

int adapter_config_read(struct adapter *adapter, const char *text)
{
    struct adapter_config *c = &adapter->config;
    *c = (struct adapter_config){.rank = NAN, .alpha = NAN, .scale = NAN};
    if (text == NULL)
        return guess_form(adapter);
    json_error_t where;
    errno = 0;
    c->json = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (c->json == NULL && errno == ENOMEM)
        return wfs_fail_memory(adapter->err);
    if (c->json == NULL)
        return fail_config(adapter, EBADMSG,
                           "line %d, column %d is not JSON (which has no Infinity and NaN)",
                           where.line, where.column);
    const char *peft = json_string_value(json_object_get(c->json, "peft_type"));
    const char *mlx = json_string_value(json_object_get(c->json, "fine_tune_type"));
    c->method = peft != NULL ? peft : mlx;
    if (c->method == NULL)
        return fail_config(
            adapter, EBADMSG,
            "it has neither peft_type nor fine_tune_type, by which its kind is known");
    return peft != NULL ? read_peft(adapter) : read_mlx(adapter);
}

int adapter_config_take_metadata(struct adapter *adapter, const char *component)
{
    struct adapter_config *c = &adapter->config;
    const struct wfs_text *text =
        text_find(wfs_catalog_meta(adapter->file), "lora_adapter_metadata");
    const size_t n_prefix = strlen(component);
    const char *key;
    json_t *value;
    if (text == NULL)
        return 0;
    errno = 0;
    json_t *all = json_loads(text->value, JSON_REJECT_DUPLICATES, NULL);
    bool is_full = all == NULL && errno == ENOMEM;
    c->json = json_object();
    is_full = is_full || c->json == NULL;
    json_object_foreach(all, key, value)
    {
        if (strncmp(key, component, n_prefix) == 0 && key[n_prefix] == '.')
            is_full = json_object_set(c->json, key + n_prefix + 1, value) < 0 || is_full;
    }
    const bool is_object = json_is_object(all);
    json_decref(all);
    if (is_full)
        return wfs_fail_memory(adapter->err);
    if (!is_object)
        return wfs_fail(adapter->err, EBADMSG,
                        "adapter '%s': lora_adapter_metadata is not an object of JSON",
                        wfs_quote(adapter->request->path).text);
    c->method = json_string_value(json_object_get(c->json, "peft_type"));
    c->method = c->method == NULL ? "LORA" : c->method;
    return json_object_size(c->json) == 0 ? 0 : read_peft(adapter);
}

static void free_patterns(struct pattern *patterns, size_t n)
{
    for (size_t i = 0; i < n; i++)
        regex_free(patterns[i].regex);
    free(patterns);
}

void adapter_config_done(struct adapter_config *config)
{
    free_patterns(config->ranks, config->n_ranks);
    free_patterns(config->alphas, config->n_alphas);
    json_decref(config->json);
}

/* The first pattern in the order of the file. */
static int find_pattern(const struct adapter *adapter, const struct pattern *patterns, size_t n,
                        const char *module, double *ret)
{
    for (size_t i = 0; i < n; i++) {
        const int code = regex_search(patterns[i].regex, module, adapter->err);
        if (code != 0) {
            *ret = patterns[i].value;
            return code < 0 ? code : 0;
        }
    }
    return 0;
}

int adapter_config_find(const struct adapter *adapter, const char *module, double *ret_rank,
                        double *ret_alpha)
{
    const struct adapter_config *c = &adapter->config;
    *ret_rank = c->rank;
    *ret_alpha = isnan(c->alpha) ? adapter->request->alpha : c->alpha;
    const int code = find_pattern(adapter, c->ranks, c->n_ranks, module, ret_rank);
    return code < 0 ? code : find_pattern(adapter, c->alphas, c->n_alphas, module, ret_alpha);
}
