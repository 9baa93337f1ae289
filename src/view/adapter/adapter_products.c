/* SPDX-License-Identifier: MIT */
/*
 * Products of two factors. All forms of B A are one step with other views of the factors.
 */
#include "view/adapter/term.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/* ---- products of two factors ---- */

/* A and B as the rows and columns of the base: left is B, right is A, or both transposed. */
static int view_product(struct term *t, const struct wfs_tensor *a, const struct wfs_tensor *b,
                        bool is_transposed)
{
    const uint64_t rank = tensor_dim(a, 0), n_in = tensor_below(a), n_out = tensor_dim(b, 0);
    struct compute_matrix *m = &t->step.a;
    const struct axis_of a_rank = {rank, n_in}, a_in = {n_in, 1}, b_out = {n_out, rank},
                         b_rank = {rank, 1};
    int code = is_transposed ? term_view_matrix(t, a, a_in, a_rank, &m->left)
                             : term_view_matrix(t, b, b_out, b_rank, &m->left);
    return code < 0        ? code
           : is_transposed ? term_view_matrix(t, b, b_rank, b_out, &m->right)
                           : term_view_matrix(t, a, a_rank, a_in, &m->right);
}

/* Decides by the shapes whether the base is [out, in] or [in, out]. */
static int choose_order(const struct term *t, const struct wfs_tensor *a,
                        const struct wfs_tensor *b, bool *ret_is_transposed)
{
    const struct wfs_tensor *base = term_base(t);
    const uint64_t n_in = tensor_below(a), n_out = tensor_dim(b, 0);
    const bool fits =
        n_out == tensor_dim(base, 0) && n_in == tensor_below(base) && base->shape.rank >= 2;
    const bool fits_transposed =
        base->shape.rank == 2 && n_in == tensor_dim(base, 0) && n_out == tensor_dim(base, 1);
    if (!fits && !fits_transposed)
        return term_fail_shape(t, n_in == tensor_below(base) ? b : a, "");
    *ret_is_transposed = !fits || (fits_transposed && t->adapter->config.is_fan_in);
    return 0;
}

/* Columns of the norms of DoRA: those of [in, out]. */
static int add_magnitude(struct term *t, const struct wfs_tensor *magnitude, bool is_by_column)
{
    const struct wfs_tensor *base = term_base(t);
    const uint64_t n = is_by_column ? tensor_below(base) : tensor_dim(base, 0);
    if (tensor_elems(magnitude) != n || t->is_batch)
        return term_fail_shape(t, magnitude, "");
    t->step.is_by_column = is_by_column;
    t->step.mix = 1;
    return term_view_vector(t, magnitude, &t->step.vector);
}

/* That of kohya is [out, 1] or [1, in]. Its weight is for the whole, not for the product. */
int term_add_dora_scale(struct term *t)
{
    const struct wfs_tensor *scale = term_leaf(t, LEAF_DORA_SCALE), *base = term_base(t);
    const uint64_t n = tensor_elems(scale);
    const bool is_by_row = n == tensor_dim(base, 0) && tensor_dim(scale, 0) == n;
    if (!is_by_row && (n != tensor_dim(base, 1) || base->shape.rank < 2))
        return term_fail_shape(t, scale, "");
    t->step.is_by_column = !is_by_row;
    t->step.mix = t->adapter->request->weight;
    if (t->step.mix == 0)
        return 0;
    t->step.scale /= t->step.mix;
    return term_view_vector(t, scale, &t->step.vector);
}

static int check_dora(const struct term *t)
{
    const bool has_magnitude =
        term_leaf(t, LEAF_MAGNITUDE) != NULL || term_leaf(t, LEAF_MLX_M) != NULL;
    if (t->adapter->config.json == NULL || t->adapter->config.has_dora == has_magnitude)
        return 0;
    return has_magnitude ? adapter_fail(t->adapter, EINVAL, t->module->typed,
                                        "has magnitudes, but adapter_config.json has no use_dora")
                         : term_fail_missing(t, "magnitudes, which use_dora needs");
}

/* The core of a product of three: [rank, inner, rest]. */
int term_view_core(const struct term *t, const struct wfs_tensor *core, struct wfs_tensor *ret)
{
    const uint64_t n = tensor_dim(core, 0) * tensor_dim(core, 1);
    const uint64_t n_last = n == 0 ? 0 : tensor_elems(core) / n;
    const struct axis_of axes[] = {{tensor_dim(core, 0), tensor_dim(core, 1) * n_last},
                                   {tensor_dim(core, 1), n_last},
                                   {n_last, 1}};
    return term_view(t, core, axes, 3, ret);
}

/*
 * The scale of AdaLoRA is by the rank that it began with, also where parts of that were pruned:
 * rank_pattern has what is left, as a list of booleans.
 */
static int find_adalora(struct term *t, const struct wfs_tensor *e, uint64_t rank)
{
    double said, alpha;
    char name[4096];
    const json_t *masks = json_object_get(t->adapter->config.json, "rank_pattern"), *mask = NULL;
    const int code = adapter_config_find(t->adapter, t->module->name, &said, &alpha);
    if (snprintf(name, sizeof(name), "%s.lora_E", t->module->typed) < (int)sizeof(name))
        mask = json_object_get(masks, name);
    size_t n_left = mask == NULL ? rank : 0;
    for (size_t i = 0; i < json_array_size(mask); i++)
        n_left += json_is_true(json_array_get(mask, i));
    if (code == 0 && (tensor_elems(e) != rank || isnan(alpha) || n_left != rank))
        return term_fail_shape(t, e, n_left != rank ? "rank_pattern has another rank" : "");
    t->rank = mask == NULL ? (double)rank : (double)json_array_size(mask);
    t->scale = alpha / (t->rank + 1e-5) * t->adapter->request->weight;
    return code < 0 ? code : term_view_vector(t, e, &t->step.a.rank_scale);
}

/* The pair A and B of a plain product, with what may stand beside it. */
int term_add_pair(struct term *t)
{
    const struct wfs_tensor *a = term_leaf(t, LEAF_A), *b = term_leaf(t, LEAF_B);
    const struct wfs_tensor *mid = term_leaf(t, LEAF_MID), *e = term_leaf(t, LEAF_E);
    bool is_transposed = false;
    if (a == NULL || b == NULL)
        return term_fail_missing(t, a == NULL ? "first factor (lora_A or lora_down)"
                                              : "second factor (lora_B or lora_up)");
    const uint64_t rank = tensor_dim(a, 0);
    int code = e != NULL ? 0 : term_find_scale(t, rank);
    code = code < 0 ? code : check_dora(t);
    if (code == 0 && tensor_below(b) != (mid != NULL ? tensor_dim(mid, 0) : rank))
        return term_fail_shape(t, b, "the ranks of its two factors differ");
    if (code == 0 && mid != NULL && tensor_dim(mid, 1) != rank)
        return term_fail_shape(t, mid, "");
    if (code == 0 && e == NULL && (code = term_check_rank(t, a, rank)) < 0)
        return code;
    if (code == 0 && mid == NULL)
        code = choose_order(t, a, b, &is_transposed);
    code = code < 0 ? code : view_product(t, a, b, is_transposed);
    if (code == 0 && mid != NULL)
        code = term_view_core(t, mid, &t->step.a.core);
    if (code == 0 && mid != NULL &&
        (tensor_dim(b, 0) != tensor_dim(term_base(t), 0) ||
         tensor_below(a) * tensor_dim(&t->step.a.core, 2) != tensor_below(term_base(t))))
        return term_fail_shape(t, mid, "");
    if (code == 0 && e != NULL)
        code = find_adalora(t, e, rank);
    t->step.scale = t->scale;
    if (code == 0 && term_leaf(t, LEAF_MAGNITUDE) != NULL)
        code = add_magnitude(t, term_leaf(t, LEAF_MAGNITUDE), is_transposed);
    if (code == 0 && term_leaf(t, LEAF_DORA_SCALE) != NULL)
        code = term_add_dora_scale(t);
    return code < 0 ? code : term_add_step(t, term_formula(t, "B A"));
}

/* Factors of an embedding: [rank, rows] and [columns, rank]. */
int term_add_embedding(struct term *t)
{
    const struct wfs_tensor *a = term_leaf(t, LEAF_EMBEDDING_A),
                            *b = term_leaf(t, LEAF_EMBEDDING_B);
    if (a == NULL || b == NULL)
        return term_fail_missing(t, a == NULL ? "lora_embedding_A" : "lora_embedding_B");
    const uint64_t rank = tensor_dim(a, 0);
    int code = term_find_scale(t, rank);
    code = code < 0 ? code : check_dora(t);
    if (code < 0 || (code = term_check_rank(t, a, rank)) < 0)
        return code;
    if (tensor_below(b) != rank || tensor_below(a) != tensor_dim(term_base(t), 0) ||
        tensor_dim(b, 0) != tensor_below(term_base(t)))
        return term_fail_shape(
            t, tensor_below(b) != rank || tensor_below(a) == tensor_dim(term_base(t), 0) ? b : a,
            "");
    code = view_product(t, a, b, true);
    t->step.scale = t->scale;
    if (code == 0 && term_leaf(t, LEAF_MAGNITUDE) != NULL)
        code = add_magnitude(t, term_leaf(t, LEAF_MAGNITUDE), true);
    return code < 0 ? code : term_add_step(t, term_formula(t, "(B A)^T"));
}

/* Experts in one tensor: A is [experts * rank, in], B [out, rank * experts]. */
int term_add_experts(struct term *t)
{
    const struct wfs_tensor *a = term_leaf(t, LEAF_A), *b = term_leaf(t, LEAF_B),
                            *base = term_base(t);
    if (a == NULL || b == NULL)
        return term_fail_missing(t, a == NULL ? "lora_A" : "lora_B");
    const uint64_t n = tensor_dim(base, 0), rank = n == 0 ? 0 : tensor_dim(a, 0) / n;
    const uint64_t n_in = tensor_below(a), n_out = tensor_dim(b, 0);
    int code = term_find_scale(t, rank);
    if (code < 0)
        return code;
    if (tensor_dim(a, 0) != rank * n || tensor_below(b) != rank * n)
        return term_fail_shape(t, tensor_dim(a, 0) != rank * n ? a : b, "");
    if ((code = term_check_rank(t, a, rank)) < 0)
        return code;
    const bool is_plain = tensor_dim(base, 1) == n_out && tensor_dim(base, 2) == n_in;
    if (!is_plain && (tensor_dim(base, 1) != n_in || tensor_dim(base, 2) != n_out))
        return term_fail_shape(t, a, "");
    const struct axis_of a_axes[] = {{n, rank * n_in}, {rank, n_in}, {n_in, 1}},
                         a_turned[] = {a_axes[0], a_axes[2], a_axes[1]},
                         b_axes[] = {{n, 1}, {n_out, rank * n}, {rank, n}},
                         b_turned[] = {b_axes[0], b_axes[2], b_axes[1]};
    t->is_batch = true;
    t->step.scale = t->scale;
    code = is_plain ? term_view(t, b, b_axes, 3, &t->step.a.left)
                    : term_view(t, a, a_turned, 3, &t->step.a.left);
    code = code < 0   ? code
           : is_plain ? term_view(t, a, a_axes, 3, &t->step.a.right)
                      : term_view(t, b, b_turned, 3, &t->step.a.right);
    return code < 0 ? code : term_add_step(t, term_formula(t, "B A of each expert"));
}

static bool has_suffix_of_embedding(const char *name)
{
    static const char *const ends[] = {"embed", "wte", "embed_tokens"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        if (strcmp(name, ends[i]) == 0 || text_ends(name, ends[i]))
            return true;
    }
    return false;
}

/* Factors of MLX: [in, rank] and [rank, out], or those of an embedding, or of experts. */
int term_add_mlx(struct term *t)
{
    const struct wfs_tensor *a = term_leaf(t, LEAF_MLX_A), *b = term_leaf(t, LEAF_MLX_B),
                            *base = term_base(t);
    struct compute_matrix *m = &t->step.a;
    if (a == NULL || b == NULL)
        return term_fail_missing(t, a == NULL ? "lora_a" : "lora_b");
    t->is_batch = base->shape.rank == 3;
    const uint64_t rank = tensor_dim(a, t->is_batch);
    const bool is_experts = t->is_batch;
    int code = term_find_scale(t, is_experts ? rank : tensor_dim(b, 0));
    code = code < 0 ? code : check_dora(t);
    if (code < 0)
        return code;
    t->step.scale = t->scale;
    if (is_experts) { /* [experts, rank, in] and [experts, out, rank] */
        const uint64_t n_in = tensor_dim(a, 2), n_out = tensor_dim(b, 1);
        const struct axis_of left[] = {{tensor_dim(b, 0), n_out * rank}, {n_out, rank}, {rank, 1}},
                             right[] = {{tensor_dim(a, 0), rank * n_in}, {rank, n_in}, {n_in, 1}};
        if (tensor_dim(a, 0) != tensor_dim(base, 0) || tensor_dim(b, 0) != tensor_dim(base, 0) ||
            n_in != tensor_dim(base, 2) || n_out != tensor_dim(base, 1) || tensor_dim(b, 2) != rank)
            return term_fail_shape(t, a, "");
        code = term_view(t, b, left, 3, &m->left);
        code = code < 0 ? code : term_view(t, a, right, 3, &m->right);
        return code < 0 ? code : term_add_step(t, term_formula(t, "lora_b lora_a of each expert"));
    }
    const uint64_t n_rank = tensor_dim(b, 0), n_first = tensor_dim(a, 0), n_last = tensor_below(b);
    const bool is_linear = n_first == tensor_dim(base, 1) && n_last == tensor_dim(base, 0);
    const bool is_embedding = n_first == tensor_dim(base, 0) && n_last == tensor_dim(base, 1);
    if ((!is_linear && !is_embedding) || tensor_below(a) != n_rank || base->shape.rank != 2)
        return term_fail_shape(t, is_linear || is_embedding ? b : a, "");
    const bool is_direct = !is_linear || (is_embedding && has_suffix_of_embedding(t->module->name));
    const struct axis_of a_first = {n_first, n_rank}, a_rank = {n_rank, 1},
                         b_rank = {n_rank, n_last}, b_last = {n_last, 1};
    code = is_direct ? term_view_matrix(t, a, a_first, a_rank, &m->left)
                     : term_view_matrix(t, b, b_last, b_rank, &m->left);
    code = code < 0    ? code
           : is_direct ? term_view_matrix(t, b, b_rank, b_last, &m->right)
                       : term_view_matrix(t, a, a_rank, a_first, &m->right);
    if (code == 0 && term_leaf(t, LEAF_MLX_M) != NULL)
        code = add_magnitude(t, term_leaf(t, LEAF_MLX_M), false);
    return code < 0 ? code
                    : term_add_step(
                          t, term_formula(t, is_direct ? "lora_a lora_b" : "(lora_a lora_b)^T"));
}
