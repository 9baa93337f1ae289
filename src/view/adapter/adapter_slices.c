/* SPDX-License-Identifier: MIT */
/*
 * Modules whose product is for several tensors of the base: experts of which the adapter has
 * factors for all in one tensor, as transformers keeps them in memory, and the base a tensor for
 * each, as most files have them; and joint projections of Flux, in the names of the original model,
 * which diffusers has apart. The rows of the product are cut, or the ranks of an expert taken out.
 */
#include "view/adapter/term.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_EXPERTS = 1 << 20, MOST_WRAPPERS = 8 };

/* Returns the number of one of the tensors, or TEXT_INDEX_NONE. */
static uint32_t find(const struct adapter *adapter, const struct slices *s, uint64_t expert,
                     size_t i, char key[SLICE_KEY])
{
    const int n =
        s->n_experts == 0
            ? snprintf(key, SLICE_KEY, "%s%" PRIu64 "%s.weight", s->fronts[i], expert, s->backs[i])
            : snprintf(key, SLICE_KEY, "%.*s%s.%" PRIu64 ".%s.weight", (int)s->n_front, s->front,
                       s->block, expert, s->backs[i]);
    return n >= SLICE_KEY ? TEXT_INDEX_NONE : adapter_find(adapter, key);
}

/* ---- experts ---- */

/* How files call the projections of an expert. */
static const char *const expert_names[][3] = {{"w1", "w3", "w2"},
                                              {"gate_proj", "up_proj", "down_proj"}};

/* Counts the experts, which have all numbers from 0 on. */
static uint64_t count(const struct adapter *adapter, const struct slices *s)
{
    char key[SLICE_KEY];
    uint64_t n = 0;
    while (n < MOST_EXPERTS && find(adapter, s, n, 2, key) != TEXT_INDEX_NONE)
        n++;
    return n;
}

static bool find_experts(const struct adapter *adapter, const char *name, struct slices *ret)
{
    static const char memory[] = ".mlp.experts", file[] = ".block_sparse_moe.experts",
                      wrapper[] = ".base_layer";
    size_t n = strlen(name), n_wrappers = 0;
    for (; n > strlen(wrapper) && memcmp(name + n - strlen(wrapper), wrapper, strlen(wrapper)) == 0;
         n_wrappers++)
        n -= strlen(wrapper);
    if (json_array_size(json_object_get(adapter->config.json, "target_parameters")) == 0 ||
        n_wrappers > MOST_WRAPPERS)
        return false;
    const bool is_mlp =
        n > strlen(memory) && memcmp(name + n - strlen(memory), memory, strlen(memory)) == 0;
    for (unsigned i = 0; i < (is_mlp ? 4 : 2); i++) { /* Mixtral has another name in files */
        *ret = (struct slices){.n_experts = 1,
                               .front = name,
                               .n_front = n - (i < 2 ? 0 : strlen(memory)),
                               .block = i < 2 ? "" : file};
        memcpy(ret->backs, expert_names[i % 2], sizeof(expert_names[0]));
        ret->n_experts = count(adapter, ret);
        if (ret->n_experts > 0)
            return true;
    }
    return false;
}

/* ---- Flux ---- */

/* A module of the original model with its number, and those of diffusers; rows in this order. */
static const struct flux {
    const char *front, *back, *block, *names[4];
} all_flux[] = {
    {"double_blocks_",
     "_img_attn_qkv",
     "transformer_blocks.",
     {".attn.to_q", ".attn.to_k", ".attn.to_v"}},
    {"double_blocks_",
     "_txt_attn_qkv",
     "transformer_blocks.",
     {".attn.add_q_proj", ".attn.add_k_proj", ".attn.add_v_proj"}},
    {"double_blocks_", "_img_attn_proj", "transformer_blocks.", {".attn.to_out.0"}},
    {"double_blocks_", "_txt_attn_proj", "transformer_blocks.", {".attn.to_add_out"}},
    {"double_blocks_", "_img_mlp_0", "transformer_blocks.", {".ff.net.0.proj"}},
    {"double_blocks_", "_img_mlp_2", "transformer_blocks.", {".ff.net.2"}},
    {"double_blocks_", "_txt_mlp_0", "transformer_blocks.", {".ff_context.net.0.proj"}},
    {"double_blocks_", "_txt_mlp_2", "transformer_blocks.", {".ff_context.net.2"}},
    {"double_blocks_", "_img_mod_lin", "transformer_blocks.", {".norm1.linear"}},
    {"double_blocks_", "_txt_mod_lin", "transformer_blocks.", {".norm1_context.linear"}},
    {"single_blocks_",
     "_linear1",
     "single_transformer_blocks.",
     {".attn.to_q", ".attn.to_k", ".attn.to_v", ".proj_mlp"}},
    {"single_blocks_", "_linear2", "single_transformer_blocks.", {".proj_out"}},
    {"single_blocks_", "_modulation_lin", "single_transformer_blocks.", {".norm.linear"}},
};

static bool find_flux(const struct adapter *adapter, const char *name, struct slices *ret)
{
    char key[SLICE_KEY];
    for (size_t i = 0; i < sizeof(all_flux) / sizeof(*all_flux); i++) {
        const struct flux *flux = &all_flux[i];
        const char *number = name + strlen(flux->front);
        uint64_t n = 0;
        if (strncmp(name, flux->front, strlen(flux->front)) != 0)
            continue;
        const size_t n_digits = strspn(number, "0123456789");
        if (n_digits == 0 || n_digits > 6 || strcmp(number + n_digits, flux->back) != 0)
            continue;
        for (size_t k = 0; k < n_digits; k++)
            n = n * 10 + (uint64_t)(number[k] - '0');
        *ret = (struct slices){.number = n};
        for (size_t k = 0; k < 4 && flux->names[k] != NULL; k++) {
            ret->n = k + 1;
            ret->fronts[k] = flux->block;
            ret->backs[k] = flux->names[k];
            if (find(adapter, ret, n, k, key) == TEXT_INDEX_NONE)
                return false;
        }
        return true;
    }
    return false;
}

bool adapter_slices_find(const struct adapter *adapter, const char *name, struct slices *ret)
{
    return adapter->config.form == FORM_KOHYA  ? find_flux(adapter, name, ret)
           : adapter->config.form == FORM_PEFT ? find_experts(adapter, name, ret)
                                               : false;
}

/* ---- products ---- */

/*
 * Adds the rows of the product from number *first on to one of the tensors, and moves that on. Of n
 * experts, B has the ranks of one in every n-th column, A in rows of its own.
 */
static int add_slice(struct term *t, const struct slices *s, uint64_t expert, size_t i,
                     uint64_t *first)
{
    const struct wfs_tensor *a = term_leaf(t, LEAF_A), *b = term_leaf(t, LEAF_B);
    const uint64_t n_in = tensor_below(a), n_all = tensor_below(b);
    const uint64_t n = s->n_experts == 0 ? 1 : s->n_experts, of = s->n_experts == 0 ? 0 : expert;
    char key[SLICE_KEY];
    t->at = find(t->adapter, s, expert, i, key);
    if (t->at == TEXT_INDEX_NONE)
        return adapter_fail(t->adapter, EINVAL, t->module->typed,
                            "is for '%s', which the base does not have", wfs_quote(key).text);
    const struct wfs_tensor *base = term_base(t);
    const uint64_t n_out = tensor_dim(base, 0);
    t->key = base->key;
    if (base->shape.rank != 2 || tensor_dim(base, 1) != n_in || *first > tensor_dim(b, 0) ||
        n_out > tensor_dim(b, 0) - *first)
        return term_fail_shape(t, b, "");
    const int is_wanted = term_is_wanted(t, t->key);
    t->step = (struct compute_step){.kind = COMPUTE_ADD, .scale = t->scale};
    struct compute_matrix *m = &t->step.a;
    int code = term_view_matrix(t, b, (struct axis_of){n_out, n_all},
                                (struct axis_of){n_all / n, n}, &m->left);
    code = code < 0 ? code
                    : term_view_matrix(t, a, (struct axis_of){n_all / n, n_in},
                                       (struct axis_of){n_in, 1}, &m->right);
    m->left.stored.offset += (*first * n_all + of) * (wfs_dtype_bits((enum wfs_dtype)b->dtype) / 8);
    m->right.stored.offset +=
        of * (n_all / n) * n_in * (wfs_dtype_bits((enum wfs_dtype)a->dtype) / 8);
    *first += n_out;
    return is_wanted <= 0 || code < 0 ? (is_wanted < 0 ? is_wanted : code)
                                      : term_add_step(t, term_formula(t, "rows of B A"));
}

static int add_experts(struct term *t, const struct slices *s)
{
    const struct wfs_tensor *a = term_leaf(t, LEAF_A), *b = term_leaf(t, LEAF_B);
    const struct wfs_tensor *base = term_base(t); /* down of the first */
    const bool is_down =
        tensor_dim(b, 0) == tensor_dim(base, 0) && tensor_below(a) == tensor_below(base);
    int code = 0;
    if (!is_down && tensor_below(a) != tensor_dim(base, 0))
        return term_fail_shape(t, a, "it is not for these experts");
    for (uint64_t i = 0; i < s->n_experts && code == 0; i++) {
        uint64_t first = 0;
        code = add_slice(t, s, i, is_down ? 2 : 0, &first);
        if (code == 0 && !is_down)
            code = add_slice(t, s, i, 1, &first);
        if (code == 0 && first != tensor_dim(b, 0))
            return term_fail_shape(t, b, "it has rows for no tensor");
    }
    return code;
}

int term_add_slices(struct term *t, const struct slices *s)
{
    const struct wfs_tensor *a = term_leaf(t, LEAF_A), *b = term_leaf(t, LEAF_B);
    const uint64_t n = s->n_experts == 0 ? 1 : s->n_experts;
    char key[SLICE_KEY];
    if (a == NULL || b == NULL)
        return term_fail_missing(t, a == NULL ? "first factor (lora_A or lora_down)"
                                              : "second factor (lora_B or lora_up)");
    t->at = find(t->adapter, s, s->number, s->n_experts == 0 ? 0 : 2, key);
    t->key = term_base(t)->key;
    if (tensor_dim(a, 0) != tensor_below(b) || tensor_dim(a, 0) % n != 0)
        return term_fail_shape(t, a, "its factors do not fit each other");
    int code = term_find_scale(t, tensor_dim(a, 0) / n);
    code = code < 0 ? code : term_check_rank(t, a, tensor_dim(a, 0) / n);
    if (code == 0 && s->n_experts > 0)
        code = add_experts(t, s);
    uint64_t first = 0;
    for (size_t i = 0; i < s->n && code == 0; i++)
        code = add_slice(t, s, s->number, i, &first);
    if (code == 0 && s->n > 0 && first != tensor_dim(b, 0))
        return term_fail_shape(t, b, "it has rows for no tensor");
    term_note_scale(t);
    return code;
}
