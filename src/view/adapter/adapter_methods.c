/* SPDX-License-Identifier: MIT */
/*
 * The methods beside LoRA: LoHa, LoKr, IA3, OFT, VeRA, differences, and rows of an embedding.
 */
#include "view/adapter/term.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/* ---- other methods ---- */

/* A matrix of LoHa: a b, or through a core, where a is [rank, out] and b [rank, in]. */
static int view_hada(const struct term *t, enum leaf first, const struct wfs_tensor *middle,
                     struct compute_matrix *m)
{
    const struct wfs_tensor *a = term_leaf(t, first), *b = term_leaf(t, (enum leaf)(first + 1));
    if (a == NULL || b == NULL)
        return term_fail_missing(t, "factor of the two that make one matrix (w_a, w_b)");
    const uint64_t rank = middle != NULL ? tensor_dim(a, 0) : tensor_below(a);
    const uint64_t n_out = middle != NULL ? tensor_below(a) : tensor_dim(a, 0);
    int code = middle != NULL ? term_view_matrix(t, a, (struct axis_of){n_out, 1},
                                                 (struct axis_of){rank, n_out}, &m->left)
                              : term_view_flat(t, a, &m->left);
    code = code < 0 ? code : term_view_flat(t, b, &m->right);
    if (code == 0 && middle != NULL)
        code = term_view_core(t, middle, &m->core);
    if (code < 0)
        return code;
    const bool is_matching =
        middle == NULL ? tensor_dim(b, 0) == rank
                       : tensor_dim(middle, 0) == rank && tensor_dim(middle, 1) == tensor_dim(b, 0);
    const uint64_t n_each = middle == NULL ? 1 : tensor_dim(&m->core, 2);
    uint64_t n_cols;
    return is_matching && checked_mul(tensor_below(b), n_each, &n_cols)
               ? 0
               : term_fail_shape(t, b, "its factors do not fit each other");
}

static uint64_t cols_of(const struct compute_matrix *m)
{
    if (m->right.stored.source == NULL)
        return tensor_dim(&m->left, 2);
    return tensor_dim(&m->right, 2) * (m->core.stored.source != NULL ? tensor_dim(&m->core, 2) : 1);
}

int term_add_loha(struct term *t)
{
    const struct wfs_tensor *first = term_leaf(t, LEAF_HADA_W1B), *base = term_base(t);
    int code = view_hada(t, LEAF_HADA_W1A, term_leaf(t, LEAF_HADA_T1), &t->step.a);
    code = code < 0 ? code : view_hada(t, LEAF_HADA_W2A, term_leaf(t, LEAF_HADA_T2), &t->step.b);
    if (code == 0 &&
        (tensor_dim(&t->step.a.left, 1) != tensor_dim(base, 0) ||
         tensor_dim(&t->step.b.left, 1) != tensor_dim(base, 0) ||
         cols_of(&t->step.a) != tensor_below(base) || cols_of(&t->step.b) != tensor_below(base)))
        return term_fail_shape(t, first, "");
    code = code < 0 ? code : term_find_scale(t, tensor_dim(first, 0));
    t->step.kind = COMPUTE_PRODUCT;
    t->step.scale = t->scale;
    if (code == 0 && term_leaf(t, LEAF_DORA_SCALE) != NULL)
        code = term_add_dora_scale(t);
    return code < 0 ? code : term_add_step(t, term_formula(t, "(w1_a w1_b) . (w2_a w2_b)"));
}

/* One side of a Kronecker product: whole, or of two factors. */
static int view_lokr(const struct term *t, enum leaf whole, const struct wfs_tensor *core,
                     struct compute_matrix *m)
{
    if (term_leaf(t, whole) != NULL)
        return term_view_flat(t, term_leaf(t, whole), &m->left);
    return view_hada(t, (enum leaf)(whole + 1), core, m);
}

int term_add_lokr(struct term *t)
{
    const struct wfs_tensor *base = term_base(t);
    const struct wfs_tensor *b1 = term_leaf(t, LEAF_LOKR_W1B), *b2 = term_leaf(t, LEAF_LOKR_W2B);
    int code = view_lokr(t, LEAF_LOKR_W1, NULL, &t->step.a);
    code = code < 0 ? code : view_lokr(t, LEAF_LOKR_W2, term_leaf(t, LEAF_LOKR_T2), &t->step.b);
    uint64_t n_rows, n_cols;
    if (code < 0)
        return code;
    if (!checked_mul(tensor_dim(&t->step.a.left, 1), tensor_dim(&t->step.b.left, 1), &n_rows) ||
        !checked_mul(cols_of(&t->step.a), cols_of(&t->step.b), &n_cols) ||
        n_rows != tensor_dim(base, 0) || n_cols != tensor_below(base))
        return term_fail_shape(
            t, term_leaf(t, term_leaf(t, LEAF_LOKR_W2) != NULL ? LEAF_LOKR_W2 : LEAF_LOKR_W2A), "");
    const uint64_t rank = b1 != NULL ? tensor_dim(b1, 0) : b2 != NULL ? tensor_dim(b2, 0) : 0;
    code = term_find_scale(t, rank);
    t->step.kind = COMPUTE_KRONECKER;
    t->step.scale = t->scale;
    if (code == 0 && term_leaf(t, LEAF_DORA_SCALE) != NULL)
        code = term_add_dora_scale(t);
    return code < 0 ? code : term_add_step(t, term_formula(t, "w1 (x) w2"));
}

/* Multiplies the vector into a tensor of the base. */
static int multiply_vector(struct term *t, const struct wfs_tensor *vector, bool is_by_column)
{
    const struct wfs_tensor *base = term_base(t);
    const uint64_t n = tensor_elems(vector);
    const uint64_t n_fit =
        base->shape.rank < 2 ? tensor_elems(base) : tensor_dim(base, is_by_column);
    if (n != n_fit)
        return term_fail_shape(t, vector, "");
    t->step = (struct compute_step){.kind = COMPUTE_MULTIPLY,
                                    .is_by_column = is_by_column || base->shape.rank < 2};
    const int code = term_view_vector(t, vector, &t->step.vector);
    return code < 0 ? code : term_add_step(t, "* ia3_l");
}

/* Moves on to the bias of the module. Returns false when the base has none. */
bool term_find_bias(struct term *t)
{
    const char *key = arena_print(&t->adapter->base->catalog->arena, "%.*s.bias",
                                  (int)(strlen(t->key) - strlen(".weight")), t->key);
    const uint32_t at = key == NULL ? TEXT_INDEX_NONE : adapter_find(t->adapter, key);
    if (at == TEXT_INDEX_NONE)
        return false;
    t->key = key;
    t->at = at;
    return true;
}

static bool is_feedforward(const struct term *t)
{
    const json_t *list = json_object_get(t->adapter->config.json, "feedforward_modules");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name != NULL && module_is_named(t->module, name))
            return true;
    }
    return false;
}

int term_add_ia3(struct term *t)
{
    const struct wfs_tensor *vector = term_leaf(t, LEAF_IA3);
    const bool is_inner = is_feedforward(t);
    if (t->adapter->request->weight != 1)
        return adapter_fail(t->adapter, EINVAL, vector->key,
                            "is a factor of IA3: it has no weight but 1");
    const int code = multiply_vector(t, vector, is_inner != t->adapter->config.is_fan_in);
    if (code < 0 || is_inner || !term_find_bias(t))
        return code;
    return multiply_vector(t, vector, true);
}

int term_add_oft(struct term *t)
{
    const struct wfs_tensor *factor = term_leaf(t, LEAF_OFT), *base = term_base(t);
    const json_t *json = t->adapter->config.json;
    const json_t *series = json_object_get(json, "use_cayley_neumann");
    const json_t *terms = json_object_get(json, "num_cayley_neumann_terms");
    uint64_t n = 2;
    while (n < 65536 && n * (n - 1) / 2 < tensor_below(factor))
        n++;
    if (base->shape.rank != 2 || n * (n - 1) / 2 != tensor_below(factor) ||
        tensor_dim(base, 1) % n != 0 ||
        (tensor_dim(factor, 0) != 1 && tensor_dim(factor, 0) != tensor_dim(base, 1) / n))
        return term_fail_shape(t, factor, "");
    if (t->adapter->request->weight != 1)
        return adapter_fail(t->adapter, EINVAL, factor->key,
                            "is a rotation of OFT: it has no weight but 1");
    t->step.kind = COMPUTE_ROTATE;
    t->step.n_block = n;
    t->step.n_terms = json_is_false(series)    ? 0
                      : json_is_integer(terms) ? (unsigned)json_integer_value(terms)
                                               : 5;
    if (t->step.n_terms > 64)
        return term_fail_shape(t, factor, "num_cayley_neumann_terms is more than 64");
    const int code = term_view_flat(t, factor, &t->step.a.left);
    return code < 0 ? code : term_add_step(t, "R^T");
}

int term_add_vera(struct term *t)
{
    const struct wfs_tensor *a = t->adapter->vera_a, *b = t->adapter->vera_b, *base = term_base(t);
    const struct wfs_tensor *d = term_leaf(t, LEAF_VERA_D), *row = term_leaf(t, LEAF_VERA_B);
    if (a == NULL || b == NULL)
        return wfs_fail(t->adapter->err, EOPNOTSUPP,
                        "adapter '%s' has no vera_A and vera_B (save_projection was false): they "
                        "come from random numbers of torch and cannot be computed",
                        wfs_quote(t->adapter->request->path).text);
    if (d == NULL || row == NULL)
        return term_fail_missing(t, d == NULL ? "vera_lambda_d" : "vera_lambda_b");
    const uint64_t rank = tensor_elems(d);
    if (tensor_elems(row) != tensor_dim(base, 0) || tensor_dim(b, 0) < tensor_dim(base, 0) ||
        tensor_dim(a, 0) != rank || tensor_below(b) != rank || tensor_below(a) < tensor_below(base))
        return term_fail_shape(t, row, "");
    t->rank = (double)rank;
    t->step.scale = t->scale = t->adapter->request->weight;
    int code = term_view_matrix(t, b, (struct axis_of){tensor_dim(base, 0), rank},
                                (struct axis_of){rank, 1}, &t->step.a.left);
    code = code < 0 ? code
                    : term_view_matrix(t, a, (struct axis_of){rank, tensor_below(a)},
                                       (struct axis_of){tensor_below(base), 1}, &t->step.a.right);
    code = code < 0 ? code : term_view_vector(t, d, &t->step.a.rank_scale);
    code = code < 0 ? code : term_view_vector(t, row, &t->step.a.row_scale);
    return code < 0 ? code : term_add_step(t, term_formula(t, "(lambda_b B) (lambda_d A)"));
}

/* A difference, added whole. */
int term_add_whole(struct term *t, const struct wfs_tensor *diff, double scale, const char *formula)
{
    const struct wfs_tensor *base = term_base(t);
    if (!wfs_shape_is_equal(&diff->shape, &base->shape))
        return term_fail_shape(t, diff, "");
    t->step = (struct compute_step){.kind = COMPUTE_ADD, .scale = scale};
    const struct axis_of rows = {base->shape.rank < 2 ? 1 : tensor_dim(base, 0),
                                 base->shape.rank < 2 ? 0 : tensor_below(base)},
                         cols = {base->shape.rank < 2 ? tensor_elems(base) : tensor_below(base), 1};
    t->scale = scale;
    const int code = term_view_matrix(t, diff, rows, cols, &t->step.a.left);
    return code < 0 ? code : term_add_step(t, term_formula(t, formula));
}

/* Rows of an embedding that were trained. */
int term_add_tokens(struct term *t)
{
    const struct wfs_tensor *rows = term_leaf(t, LEAF_TOKENS), *base = term_base(t);
    const json_t *list = json_object_get(t->adapter->config.json, "trainable_token_indices");
    const char *name;
    json_t *value;
    if (json_is_object(list)) {
        const json_t *found = NULL;
        json_object_foreach((json_t *)(uintptr_t)list, name, value)
        {
            if (module_is_named(t->module, name))
                found = found == NULL ? value : found;
        }
        list = found;
    }
    const size_t n = json_array_size(list);
    if (n == 0 || n != tensor_dim(rows, 0) || tensor_below(rows) != tensor_below(base))
        return term_fail_shape(t, rows, "trainable_token_indices does not list its rows");
    uint64_t *numbers = arena_calloc(&t->adapter->base->catalog->arena, n, sizeof(*numbers));
    if (numbers == NULL)
        return wfs_fail_memory(t->adapter->err);
    for (size_t i = 0; i < n; i++) {
        const json_t *number = json_array_get(list, i);
        if (!json_is_integer(number) || json_integer_value(number) < 0 ||
            (uint64_t)json_integer_value(number) >= tensor_dim(base, 0))
            return term_fail_shape(t, rows, "trainable_token_indices has a row that is not there");
        numbers[i] = (uint64_t)json_integer_value(number);
    }
    t->step = (struct compute_step){.kind = COMPUTE_ROWS, .rows = numbers, .n_rows = n};
    const int code = term_view_flat(t, rows, &t->step.a.left);
    return code < 0 ? code : term_add_step(t, "rows of trainable tokens");
}
