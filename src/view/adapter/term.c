/* SPDX-License-Identifier: MIT */
/*
 * What all formulas need: other views of a factor, the scale of a module, a step with its note.
 */
#include "view/adapter/term.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tensor/tensor.h"

/* Reports that a factor does not fit. */
int term_fail_shape(const struct term *t, const struct wfs_tensor *factor, const char *why)
{
    char is[200], base[200];
    wfs_shape_format(&(factor)->shape, is, sizeof(is));
    wfs_shape_format(&(term_base(t))->shape, base, sizeof(base));
    return adapter_fail(t->adapter, EINVAL, factor->key, "%s does not fit '%s' %s%s%s", is,
                        wfs_quote(t->key).text, base, *why != '\0' ? ": " : "", why);
}

int term_fail_missing(const struct term *t, const char *what)
{
    return adapter_fail(t->adapter, EINVAL, t->module->typed, "has no %s", what);
}

int term_is_wanted(const struct term *t, const char *key)
{
    const struct adapter_request *r = t->adapter->request;
    const int code = r->regex == NULL ? 1 : regex_search(r->regex, key, t->adapter->err);
    return code < 0 || r->regex == NULL ? code : (code > 0) != r->is_negated;
}

/* ---- views of factors ---- */

/*
 * Shows a factor, which is row-major, with other dimensions. One that is not stored row-major is
 * read as it is shown.
 */
int term_view(const struct term *t, const struct wfs_tensor *factor, const struct axis_of *axes,
              uint32_t rank, struct wfs_tensor *ret)
{
    struct wfs_catalog *catalog = t->adapter->base->catalog;
    uint64_t *dims = arena_calloc(&catalog->arena, 2 * (size_t)rank, sizeof(*dims));
    if (dims == NULL)
        return wfs_fail_memory(t->adapter->err);
    *ret = *factor;
    if (!wfs_tensor_is_plain(factor)) {
        struct source *shown;
        if (shown_source(factor, &shown) < 0 || catalog_adopt_made(catalog, shown) < 0)
            return wfs_fail_memory(t->adapter->err);
        ret->stored = (struct wfs_stored){.source = shown, .dtype = factor->dtype};
    }
    for (uint32_t i = 0; i < rank; i++) {
        dims[i] = axes[i].n;
        dims[rank + i] = axes[i].step;
    }
    ret->shape = (struct wfs_shape){rank, dims};
    ret->stored.strides = dims + rank;
    if (wfs_shape_bytes(&ret->shape, (enum wfs_dtype)ret->dtype, &ret->n_bytes) < 0)
        return term_fail_shape(t, factor, "it is too large");
    return 0;
}

/* Shows a factor as one matrix. */
int term_view_matrix(const struct term *t, const struct wfs_tensor *factor, struct axis_of rows,
                     struct axis_of cols, struct wfs_tensor *ret)
{
    const struct axis_of axes[] = {{1, 0}, rows, cols};
    return term_view(t, factor, axes, 3, ret);
}

/* As its first dimension and all others. */
int term_view_flat(const struct term *t, const struct wfs_tensor *factor, struct wfs_tensor *ret)
{
    const uint64_t n = tensor_below(factor);
    return term_view_matrix(t, factor, (struct axis_of){tensor_dim(factor, 0), n},
                            (struct axis_of){n, 1}, ret);
}

int term_view_vector(const struct term *t, const struct wfs_tensor *factor, struct wfs_tensor *ret)
{
    const struct axis_of axis = {tensor_elems(factor), 1};
    return term_view(t, factor, &axis, 1, ret);
}

/* ---- computations ---- */

/* Checks that the tensor can have a computation like this. */
static int check_computation(const struct term *t)
{
    const struct source *made = t->adapter->base->computed[t->at];
    const enum wfs_dtype dtype = (enum wfs_dtype)term_base(t)->dtype;
    if (made != NULL && compute_is_batch(made) != t->is_batch)
        return adapter_fail(t->adapter, EINVAL, t->module->typed,
                            "sees '%s' as experts, another adapter does not",
                            wfs_quote(t->key).text);
    if (made == NULL && !dtype_is_wide_float(dtype))
        return adapter_fail(t->adapter, EINVAL, t->module->typed,
                            "is for '%s' of the base, which is %s: only F16, BF16, F32 and F64 are "
                            "computed; dequantize it first",
                            wfs_quote(t->key).text, wfs_dtype_name(dtype));
    return 0;
}

/* Adds the step, with a formula and a note of it. */
int term_add_step(struct term *t, const char *formula)
{
    struct adapter *a = t->adapter;
    struct wfs_error inner = {0};
    if (compute_check(&t->step, &inner) < 0)
        return adapter_fail(a, inner.code, t->module->typed, "%s", inner.text);
    const int code = check_computation(t);
    if (code < 0)
        return code;
    if (a->formula == NULL || strcmp(a->formula, formula) != 0) {
        struct arena *arena = &a->base->catalog->arena;
        const struct wfs_quoted name = wfs_quote(a->name);
        a->text = arena_print(arena, "%s (%s)", formula, name.text);
        a->change = arena_print(arena, "lora %s (%s)", name.text, formula);
        a->formula = arena_copy(arena, formula, strlen(formula));
    }
    if (a->formula == NULL || a->text == NULL || a->change == NULL ||
        adapter_base_add(a->base, t->at, t->is_batch, &t->step, a->text, a->change) < 0)
        return wfs_fail_memory(a->err);
    a->n_pairs++;
    return 0;
}

/* "+ 2 * B A" */
const char *term_formula(struct term *t, const char *product)
{
    snprintf(t->formula, sizeof(t->formula), "+ %.6g * %s%s", t->scale, product,
             step_has(&t->step.vector) ? ", normalised" : "");
    return t->formula;
}

void term_note_scale(struct term *t)
{
    struct adapter *a = t->adapter;
    if (t->rank == 0) /* it has none */
        return;
    a->least_rank = fmin(t->rank, a->least_rank);
    a->most_rank = fmax(t->rank, a->most_rank);
    a->least_scale = fmin(t->scale, a->least_scale);
    a->most_scale = fmax(t->scale, a->most_scale);
}

/* ---- scales ---- */

/* Reads a tensor of one element. */
static int read_scalar(const struct term *t, const struct wfs_tensor *tensor, double *ret)
{
    char bytes[16];
    const size_t n = wfs_dtype_bits((enum wfs_dtype)tensor->dtype) / 8;
    if (tensor_elems(tensor) != 1)
        return term_fail_shape(t, tensor, "it is one number");
    if (wfs_tensor_read(tensor, 0, bytes, n) != (ssize_t)n ||
        wfs_dtype_decode((enum wfs_dtype)tensor->dtype, bytes, 1, ret) < 0)
        return adapter_fail(t->adapter, EIO, tensor->key, "cannot be read");
    return 0;
}

/* Finds alpha and rank of a module, and what they make of the weight. rank: of the file. */
int term_find_scale(struct term *t, uint64_t rank)
{
    const struct adapter *a = t->adapter;
    const struct adapter_config *c = &a->config;
    double said = NAN, alpha = NAN;
    t->rank = (double)rank;
    t->scale = a->request->weight;
    if (c->form == FORM_MLX) {
        t->scale *= c->scale;
        return isnan(c->scale)
                   ? wfs_fail(a->err, EINVAL,
                              "adapter '%s': adapter_config.json has no lora_parameters.scale",
                              wfs_quote(a->request->path).text)
                   : 0;
    }
    const struct wfs_tensor *own = term_leaf(t, LEAF_ALPHA);
    int code = adapter_config_find(a, t->module->name, &said, &alpha);
    if (code == 0 && own != NULL)
        code = read_scalar(t, own, &alpha);
    if (code < 0)
        return code;
    if (c->form == FORM_PEFT && isnan(alpha))
        return wfs_fail(a->err, EINVAL,
                        "adapter '%s': adapter_config.json has no %s, for which each version of "
                        "peft takes another: state lora_alpha=N",
                        wfs_quote(a->request->path).text,
                        strcmp(c->method, "LORA") == 0 ? "lora_alpha" : "alpha");
    if (c->form == FORM_PEFT && c->json != NULL && isnan(said))
        return wfs_fail(a->err, EINVAL, "adapter '%s': adapter_config.json has no r",
                        wfs_quote(a->request->path).text);
    if (!isnan(said)) /* of LoKr, also where no factor has that size */
        t->rank = said;
    if (isinf(alpha) || said < 1 || (own != NULL && isnan(alpha)))
        return wfs_fail(a->err, EINVAL, "adapter '%s': alpha %g and rank %g of '%s' cannot be",
                        wfs_quote(a->request->path).text, alpha, t->rank,
                        wfs_quote(t->module->typed).text);
    if (!isnan(alpha) && t->rank > 0)
        t->scale *= alpha / (c->has_rslora ? sqrt(t->rank) : t->rank);
    double scalar = 1; /* of LyCORIS */
    code =
        term_leaf(t, LEAF_SCALAR) == NULL ? 0 : read_scalar(t, term_leaf(t, LEAF_SCALAR), &scalar);
    t->scale *= scalar;
    return code == 0 && !isfinite(t->scale)
               ? adapter_fail(a, EINVAL, t->module->typed, "has a scale of %g, which cannot be",
                              t->scale)
               : code;
}

/* Checks that the rank is the one that the configuration states. */
int term_check_rank(const struct term *t, const struct wfs_tensor *factor, uint64_t rank)
{
    char why[120];
    if (t->adapter->config.form == FORM_MLX || t->adapter->config.json == NULL ||
        (double)rank == t->rank)
        return 0;
    snprintf(why, sizeof(why), "its rank is %" PRIu64 ", in the configuration it is %g", rank,
             t->rank);
    return term_fail_shape(t, factor, why);
}
