/* SPDX-License-Identifier: MIT */
/*
 * Keys of an adapter file as a module and a leaf. Each library has its own spelling; a key that
 * none has is an error.
 */
#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view/adapter/parts.h"

/* How the keys of a leaf end. ".weight" may follow, and in peft's the name of the adapter before
 * that. */
static const struct ending {
    const char *text;
    enum leaf leaf;
    unsigned forms; /* 1 << enum adapter_form */
} endings[] = {
    {"lora_A", LEAF_A, 1 << FORM_PEFT | 1 << FORM_DIFFUSERS},
    {"lora_B", LEAF_B, 1 << FORM_PEFT | 1 << FORM_DIFFUSERS},
    {"lora.down", LEAF_A, 1 << FORM_DIFFUSERS},
    {"lora.up", LEAF_B, 1 << FORM_DIFFUSERS},
    {"lora_down", LEAF_A, 1 << FORM_KOHYA},
    {"lora_up", LEAF_B, 1 << FORM_KOHYA},
    {"lora_mid", LEAF_MID, 1 << FORM_KOHYA},
    {"alpha", LEAF_ALPHA, 1 << FORM_KOHYA | 1 << FORM_DIFFUSERS},
    {"scalar", LEAF_SCALAR, 1 << FORM_KOHYA},
    {"dora_scale", LEAF_DORA_SCALE, 1 << FORM_KOHYA},
    {"diff", LEAF_DIFF, 1 << FORM_KOHYA},
    {"diff_b", LEAF_DIFF_B, 1 << FORM_KOHYA},
    {"lora_embedding_A", LEAF_EMBEDDING_A, 1 << FORM_PEFT},
    {"lora_embedding_B", LEAF_EMBEDDING_B, 1 << FORM_PEFT},
    {"lora_E", LEAF_E, 1 << FORM_PEFT},
    {"lora_B.bias", LEAF_B_BIAS, 1 << FORM_PEFT},
    {"lora_magnitude_vector", LEAF_MAGNITUDE, 1 << FORM_PEFT | 1 << FORM_DIFFUSERS},
    {"hada_w1_a", LEAF_HADA_W1A, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"hada_w1_b", LEAF_HADA_W1B, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"hada_w2_a", LEAF_HADA_W2A, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"hada_w2_b", LEAF_HADA_W2B, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"hada_t1", LEAF_HADA_T1, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"hada_t2", LEAF_HADA_T2, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"lokr_w1", LEAF_LOKR_W1, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"lokr_w1_a", LEAF_LOKR_W1A, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"lokr_w1_b", LEAF_LOKR_W1B, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"lokr_w2", LEAF_LOKR_W2, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"lokr_w2_a", LEAF_LOKR_W2A, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"lokr_w2_b", LEAF_LOKR_W2B, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"lokr_t2", LEAF_LOKR_T2, 1 << FORM_PEFT | 1 << FORM_KOHYA},
    {"ia3_l", LEAF_IA3, 1 << FORM_PEFT},
    {"oft_R", LEAF_OFT, 1 << FORM_PEFT},
    {"vera_lambda_b", LEAF_VERA_B, 1 << FORM_PEFT},
    {"vera_lambda_d", LEAF_VERA_D, 1 << FORM_PEFT},
    {"token_adapter.trainable_tokens_delta", LEAF_TOKENS, 1 << FORM_PEFT},
    {"lora_a", LEAF_MLX_A, 1 << FORM_MLX},
    {"lora_b", LEAF_MLX_B, 1 << FORM_MLX},
    {"m", LEAF_MLX_M, 1 << FORM_MLX},
};

/* Components of a pipeline: how keys begin, and the name of the folder. */
static const struct component {
    const char *prefix, *name;
    unsigned forms;
} components[] = {
    {"lora_unet_", "unet", 1 << FORM_KOHYA},
    {"lora_transformer_", "transformer", 1 << FORM_KOHYA},
    {"lora_te_", "text_encoder", 1 << FORM_KOHYA},
    {"lora_te1_", "text_encoder", 1 << FORM_KOHYA},
    {"lora_te2_", "text_encoder_2", 1 << FORM_KOHYA},
    {"lycoris_", "", 1 << FORM_KOHYA},
    {"lora_", "", 1 << FORM_KOHYA}, /* after the longer ones */
    {"unet.", "unet", 1 << FORM_DIFFUSERS},
    {"transformer.", "transformer", 1 << FORM_DIFFUSERS},
    {"text_encoder.", "text_encoder", 1 << FORM_DIFFUSERS},
    {"text_encoder_2.", "text_encoder_2", 1 << FORM_DIFFUSERS},
    {"base_model.model.", "", 1 << FORM_PEFT},
};

int adapter_fail(const struct adapter *adapter, int code, const char *key, const char *format, ...)
{
    char text[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    return wfs_fail(adapter->err, code, "adapter '%s': '%s' %s",
                    wfs_quote(adapter->request->path).text, wfs_quote(key).text, text);
}

int adapter_warn(const struct adapter *adapter, const char *format, ...)
{
    char text[WFS_ERROR_TEXT_MAX], whole[WFS_ERROR_TEXT_MAX + 32];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    snprintf(whole, sizeof(whole), "in this adapter, %s", text);
    return adapter->request->warn(adapter->request->ctx, adapter->request->path, whole);
}

/* A key in its parts: module [name, n_name), leaf, and component. */
struct spelling {
    const char *name, *component;
    size_t n_name;
    enum leaf leaf;
};

/* Cuts the text off the end. */
static bool cut_end(const char *text, size_t *n, const char *end)
{
    const size_t n_end = strlen(end);
    if (*n < n_end || memcmp(text + *n - n_end, end, n_end) != 0)
        return false;
    *n -= n_end;
    return true;
}

/* Returns whether what is left ends in a dot and the ending; cuts both off. */
static bool cut_leaf(struct spelling *s, const char *end)
{
    size_t n = s->n_name;
    if (!cut_end(s->name, &n, end) || n < 2 || s->name[n - 1] != '.')
        return false;
    s->n_name = n - 1;
    return true;
}

static bool find_leaf(struct spelling *s, enum adapter_form form)
{
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
        if ((endings[i].forms >> form & 1) != 0 && cut_leaf(s, endings[i].text)) {
            s->leaf = endings[i].leaf;
            return true;
        }
    }
    return false;
}

/* As older versions of diffusers name them: X.processor.to_q_lora is X.to_q. Returns a text in the
 * arena, or NULL where it is not one of them or memory ran out. */
static const char *read_processor(struct spelling *s, struct arena *arena)
{
    static const char *const projections[] = {"to_q", "to_k", "to_v", "to_out"};
    size_t n = s->n_name;
    if (cut_end(s->name, &n, "_lora.down"))
        s->leaf = LEAF_A;
    else if (cut_end(s->name, &n, "_lora.up"))
        s->leaf = LEAF_B;
    else
        return NULL;
    for (size_t i = 0; i < sizeof(projections) / sizeof(*projections); i++) {
        size_t n_module = n;
        if (cut_end(s->name, &n_module, projections[i]) &&
            cut_end(s->name, &n_module, ".processor."))
            return arena_print(arena, "%.*s.%s%s", (int)n_module, s->name, projections[i],
                               i == 3 ? ".0" : "");
    }
    return NULL;
}

/* Cuts the name of the adapter off: lora_A.default. */
static bool cut_adapter_name(struct spelling *s, enum adapter_form form)
{
    const char *dot = memrchr(s->name, '.', s->n_name);
    if (form != FORM_PEFT || dot == NULL)
        return false;
    s->n_name = (size_t)(dot - s->name);
    return true;
}

static void find_component(struct spelling *s, enum adapter_form form, const char *key)
{
    *s = (struct spelling){.name = key, .component = "", .n_name = strlen(key)};
    for (size_t i = 0; i < sizeof(components) / sizeof(*components); i++) {
        const size_t n = strlen(components[i].prefix);
        if ((components[i].forms >> form & 1) == 0 || strncmp(key, components[i].prefix, n) != 0)
            continue;
        s->component = components[i].name;
        s->name += n;
        s->n_name = strlen(s->name);
        return;
    }
}

/* A tensor that is one of the base, as a whole. */
static bool find_whole(struct spelling *s, enum adapter_form form)
{
    const bool is_weight = form != FORM_KOHYA && cut_end(s->name, &s->n_name, ".weight");
    const bool is_bias = !is_weight && form != FORM_KOHYA && cut_end(s->name, &s->n_name, ".bias");
    if (!is_weight && !is_bias)
        return false;
    s->leaf = is_weight ? LEAF_WHOLE : LEAF_WHOLE_BIAS;
    if (is_weight && cut_end(s->name, &s->n_name, ".base_layer"))
        s->leaf = LEAF_BASE;
    return true;
}

/* Finds module and leaf of a key; the name may be another text in the arena. */
static bool read_key(struct adapter *adapter, const char *key, struct spelling *ret)
{
    const enum adapter_form form = adapter->config.form;
    struct spelling s;
    find_component(&s, form, key);
    const struct spelling whole = s;
    const bool is_weight = cut_end(s.name, &s.n_name, ".weight");
    *ret = s;
    if (find_leaf(ret, form))
        return true;
    if (is_weight) {
        const char *name =
            form == FORM_DIFFUSERS ? read_processor(ret, &adapter->base->catalog->arena) : NULL;
        if (name != NULL) {
            ret->name = name;
            ret->n_name = strlen(name);
            return true;
        }
        *ret = s;
        if (cut_adapter_name(ret, form) && find_leaf(ret, form))
            return true;
    }
    *ret = whole;
    return find_whole(ret, form);
}

/* Finds the module, or adds it. */
static int add_module(struct adapter *adapter, const struct spelling *s, struct module **ret)
{
    struct arena *arena = &adapter->base->catalog->arena;
    struct module *last = adapter->n_modules > 0 ? &adapter->modules[adapter->n_modules - 1] : NULL;
    if (last != NULL && last->component == s->component &&
        strncmp(last->typed, s->name, s->n_name) == 0 && last->typed[s->n_name] == '\0') {
        *ret = last; /* its factors follow each other */
        return 0;
    }
    /* Modules of one name in two components are two. */
    const char *typed = arena_print(arena, "%s/%.*s", s->component, (int)s->n_name, s->name);
    const size_t n_before = adapter->names.n_texts;
    uint32_t i;
    if (typed == NULL || text_index_add(&adapter->names, typed, strlen(typed), &i) < 0)
        return wfs_fail_memory(adapter->err);
    if (i == n_before) {
        if (array_reserve(&adapter->modules, sizeof(*adapter->modules), adapter->n_modules, 1,
                          &adapter->n_room) < 0)
            return wfs_fail_memory(adapter->err);
        struct module *module = &adapter->modules[adapter->n_modules++];
        *module =
            (struct module){.typed = typed + strlen(s->component) + 1, .component = s->component};
        const int code = adapter->request->rename(adapter->request->ctx, module->typed, arena,
                                                  &module->name, adapter->err);
        if (code < 0)
            return code;
    }
    *ret = &adapter->modules[i];
    return 0;
}

static bool is_float(const struct wfs_tensor *tensor)
{
    return wfs_dtype_kind((enum wfs_dtype)tensor->dtype) == WFS_KIND_FLOAT &&
           wfs_dtype_bits((enum wfs_dtype)tensor->dtype) >= 8;
}

/* Those of VeRA are for all modules. */
static bool take_shared(struct adapter *adapter, const struct wfs_tensor *tensor)
{
    if (strcmp(tensor->key, "base_model.vera_A") == 0)
        adapter->vera_a = tensor;
    else if (strcmp(tensor->key, "base_model.vera_B") == 0)
        adapter->vera_b = tensor;
    else
        return false;
    return true;
}

static int add_tensor(struct adapter *adapter, const struct wfs_tensor *tensor)
{
    struct spelling s;
    struct module *module = NULL;
    const char *trouble = wfs_tensor_trouble(tensor);
    if (trouble != NULL)
        return adapter_fail(adapter, EIO, tensor->key, "cannot be read: %s", trouble);
    if (adapter->config.form == FORM_PEFT && take_shared(adapter, tensor))
        return 0;
    if (adapter->config.form == FORM_PEFT && strncmp(tensor->key, "base_model.model.", 17) != 0)
        return adapter_fail(adapter, EINVAL, tensor->key,
                            "does not begin with 'base_model.model.' as keys of peft do; 'weightfs "
                            "convert --remap s/^/base_model.model./ FILE NEW' makes such a file");
    if (!read_key(adapter, tensor->key, &s))
        return adapter_fail(adapter, EOPNOTSUPP, tensor->key,
                            "is not a name that an adapter of a known method has");
    if (!is_float(tensor) && s.leaf < LEAF_TOKENS)
        return adapter_fail(adapter, EINVAL, tensor->key, "is %s, factors are floats",
                            wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    const int code = add_module(adapter, &s, &module);
    if (code < 0)
        return code;
    if (module->leaves[s.leaf] != NULL)
        return adapter_fail(adapter, EINVAL, tensor->key, "and '%s' are names of one tensor",
                            wfs_quote(module->leaves[s.leaf]->key).text);
    module->leaves[s.leaf] = tensor;
    return 0;
}

int adapter_parts_read(struct adapter *adapter)
{
    int code = 0;
    for (size_t i = 0; i < adapter->file->n_tensors && code == 0; i++)
        code = add_tensor(adapter, &adapter->file->tensors[i]);
    if (code == 0 && adapter->n_modules == 0)
        return wfs_fail(adapter->err, EINVAL, "adapter '%s' has no tensors",
                        wfs_quote(adapter->request->path).text);
    return code;
}

void adapter_parts_done(struct adapter *adapter)
{
    free(adapter->modules);
    text_index_done(&adapter->names);
}
