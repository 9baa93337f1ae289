/* SPDX-License-Identifier: MIT */
/*
 * A term: what a module adds to one tensor. The formulas are in adapter_products.c and
 * adapter_methods.c; adapter_targets.c decides which one is for which tensor.
 */
#ifndef WFS_ADAPTER_TERM_H
#define WFS_ADAPTER_TERM_H

#include "compute/compute.h"
#include "tensor/tensor.h"
#include "view/adapter/parts.h"

struct term {
    struct adapter *adapter;
    struct module *module;
    const char *key; /* of the base */
    uint32_t at;     /* its number */
    bool is_batch;   /* of experts */
    double rank, scale;
    struct compute_step step;
    char formula[120];
};

static inline struct wfs_tensor *term_base(const struct term *t)
{
    return &t->adapter->base->catalog->tensors[t->at];
}

/* Returns a factor of the module, which is used by that; NULL: it has none. */
static inline const struct wfs_tensor *term_leaf(const struct term *t, enum leaf leaf)
{
    t->module->used |= (uint64_t)1 << leaf;
    return t->module->leaves[leaf];
}

/* Elements of one index of the first dimension. */
static inline uint64_t tensor_below(const struct wfs_tensor *tensor)
{
    const uint64_t first = tensor_dim(tensor, 0);
    return first == 0 ? 0 : tensor_elems(tensor) / first;
}

/* Reports that a factor does not fit, or that there is none of a kind. */
int term_fail_shape(const struct term *t, const struct wfs_tensor *factor, const char *why);
int term_fail_missing(const struct term *t, const char *what);

/* How many there are of a dimension, and the elements from one to the next. */
struct axis_of {
    uint64_t n, step;
};

/* Shows a factor, whose elements are counted row-major, with other dimensions. */
int term_view(const struct term *t, const struct wfs_tensor *factor, const struct axis_of *axes,
              uint32_t rank, struct wfs_tensor *ret);

/* As one matrix; as its first dimension and all others; as a vector. */
int term_view_matrix(const struct term *t, const struct wfs_tensor *factor, struct axis_of rows,
                     struct axis_of cols, struct wfs_tensor *ret);
int term_view_flat(const struct term *t, const struct wfs_tensor *factor, struct wfs_tensor *ret);
int term_view_vector(const struct term *t, const struct wfs_tensor *factor, struct wfs_tensor *ret);

/* As the core of a product of three: [rank, inner, rest]. */
int term_view_core(const struct term *t, const struct wfs_tensor *core, struct wfs_tensor *ret);

/* Finds rank and scale of the module. rank: that of its factors; 0: they have none. */
int term_find_scale(struct term *t, uint64_t rank);

/* Checks that the configuration has the same rank as the factor. */
int term_check_rank(const struct term *t, const struct wfs_tensor *factor, uint64_t rank);

/* "+ 2 * B A" */
const char *term_formula(struct term *t, const char *product);

/* Adds the step to the tensor, with a formula and a note of it. */
int term_add_step(struct term *t, const char *formula);

/* Returns 1 if what is asked for is for this key, else 0, or an error. */
int term_is_wanted(const struct term *t, const char *key);

/* Notes rank and scale for the report. */
void term_note_scale(struct term *t);

/* The formulas. */
int term_add_pair(struct term *t);
int term_add_embedding(struct term *t);
int term_add_experts(struct term *t);
int term_add_slices(struct term *t, const struct slices *slices);
int term_add_mlx(struct term *t);
int term_add_dora_scale(struct term *t);
int term_add_loha(struct term *t);
int term_add_lokr(struct term *t);
int term_add_ia3(struct term *t);
int term_add_oft(struct term *t);
int term_add_vera(struct term *t);
int term_add_tokens(struct term *t);
int term_add_whole(struct term *t, const struct wfs_tensor *diff, double scale,
                   const char *formula);

/* Moves on to the bias of the module. Returns false when the base has none. */
bool term_find_bias(struct term *t);

#endif
