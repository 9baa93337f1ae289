/* SPDX-License-Identifier: MIT */
/*
 * Tensors that are computed from others when they are read: sums of checkpoints, and products of
 * thin factors that are added to a base. The room knows numbers, not what they are for: which
 * factors of a file belong to which tensor is known by others.
 *
 * A computation is a base and a list of steps. It is a source of doubles, dense and row-major, from
 * which any range can be read: every element is computed in double precision, by the same
 * operations in the same order whatever the range, and is rounded once, where it is shown
 * (is_unrounded of struct wfs_stored). So the result depends on nothing but the stored values.
 */
#ifndef WFS_COMPUTE_H
#define WFS_COMPUTE_H

#include <weightfs/error.h>
#include <weightfs/tensor.h>
#include "base/source.h"

/*
 * What can be done to a tensor, one step after the other. v is what it has become so far.
 */

/*
 * A matrix that is stored (left, no right), or the product of two. Shapes are [batches, rows,
 * cols], [batches, rows, rank] and [batches, rank, cols], with any strides, in a number dtype. A
 * tensor without a source is not there.
 */
struct compute_matrix {
    struct wfs_tensor left, right;
    struct wfs_tensor core;       /* [rank, inner, n]: right is [1, inner, cols / n], and what is
                                     multiplied are the sums over inner: [rank, cols / n, n] */
    struct wfs_tensor rank_scale; /* [rank]: multiplies rows of right */
    struct wfs_tensor row_scale;  /* [rows]: multiplies rows of the product */
};

static inline bool step_has(const struct wfs_tensor *tensor)
{
    return tensor->stored.source != NULL;
}

enum compute_kind {
    COMPUTE_SCALE,     /* v * scale */
    COMPUTE_ADD,       /* v + scale * A */
    COMPUTE_TOWARDS,   /* v + scale * (A - base) */
    COMPUTE_PRODUCT,   /* v + scale * (A, element by element, times B) */
    COMPUTE_KRONECKER, /* v + scale * (A (x) B) */
    COMPUTE_MULTIPLY,  /* v * the vector, along rows or columns */
    COMPUTE_ROTATE,    /* v times block-diagonal rotations, transposed */
    COMPUTE_ROWS,      /* some rows become those of A */
    COMPUTE_SHIFT,     /* v + scale */
    COMPUTE_LOOK_UP,   /* the element of the vector that v is the number of; NaN: it has none */
    COMPUTE_POWER,     /* 2^(v - 127) */
    COMPUTE_GRID,      /* v * g, or v / g, or v + scale * g, with g of A for a block of elements */
    COMPUTE_SLERP,     /* v and A, on the arc between them; scale from 0 to 1 */
};

struct compute_step {
    enum compute_kind kind;
    double scale;
    struct compute_matrix a, b;
    /*
     * Of MULTIPLY the factors. Of ADD, PRODUCT and KRONECKER, with d for the term: v becomes (v +
     * scale * d) * (1 + mix * (vector / norm - 1)), where the norms are those of the rows (columns)
     * of base + scale * d. No source: v + scale * d.
     */
    struct wfs_tensor vector;
    bool
        is_by_column; /* an element of the vector is for as many columns as there are per element */
    double mix;
    /* Of ROTATE: a holds, for each block (or one for all), the upper triangle of a skew-symmetric
     * matrix Q of n_block rows. The rotation is I + 2Q + 2Q^2 ... + Q^(n_terms - 1), or (I - Q) (I
     * + Q)^-1 where n_terms is 0. */
    uint64_t n_block;
    unsigned n_terms;
    const uint64_t *rows; /* of ROWS: n_rows of them, borrowed, sorted */
    size_t n_rows;
    /* Of GRID: A is a matrix whose element is for n_block_rows x n_block_cols elements, the last
     * ones for what is left; where there is a vector, its elements are the rows of A for the rows
     * of v. */
    enum compute_operation { COMPUTE_TIMES, COMPUTE_BY, COMPUTE_PLUS } operation;
    uint64_t n_block_rows, n_block_cols;
    bool is_single; /* what comes out of SCALE, SHIFT and GRID is rounded to F32 */
};

/*
 * Makes a computation: the base as it is shown, or unrounded where it is computed itself. It is
 * seen as a matrix whose columns are all dimensions but the first, or as a batch of them, one for
 * each index of the first of three dimensions. -ENOMEM.
 */
int compute_new(const struct wfs_tensor *base, bool is_batch, struct source **out);

/* Adds a step, which is copied; the arrays of its tensors are borrowed. text describes it. -ENOMEM.
 */
int compute_add(struct source *source, const struct compute_step *step, const char *text);

/* Returns whether it is seen as a batch. */
bool compute_is_batch(const struct source *source);

/* Shows the tensor as the computation of it, in its dtype: as a source of doubles, or of F32 where
 * that has all results of the steps, so that no step may be added to those afterwards. */
void compute_show(struct wfs_tensor *tensor, struct source *source);

/* Checks how much memory the step takes. -E2BIG. */
int compute_check(const struct compute_step *step, struct wfs_error *err);

/*
 * Tensors that were cut along one dimension, as the whole: in their dtype, dense and row-major.
 */

/*
 * Makes the whole a source. Each part has n_outer runs of elements, one for each index of what is
 * outside of the dimension; those of all parts, in their order, are one run of the whole. The parts
 * are copied, their arrays are borrowed. All have the same dtype, of whole bytes. -ENOMEM.
 */
int join_new(const struct wfs_tensor *parts, size_t n_parts, uint64_t n_outer, struct source **out);

/* Returns the first part; NULL: the source is not of this kind, or is NULL. */
const struct wfs_tensor *join_first(const struct source *source);

/* Returns whether both are joined from the same parts. */
bool join_is_same(const struct source *one, const struct source *two);

/* Pairs of computed tensors that were tied: how many, and the positions of the first. */
struct compute_untied {
    size_t n, one, two;
};

/*
 * Lets tensors that are made of tied ones in the same way show the same source, so that they are
 * tied. computed: the new computations by tensor, NULL: of this one, or all, there is none; pairs
 * that they part are counted in *ret. follows: what is not computed shows the new computation of a
 * tensor that it was tied to. -ENOMEM.
 */
int compute_tie(struct wfs_tensor *tensors, size_t n, struct source *const *computed, bool follows,
                struct compute_untied *ret);

/*
 * Codes of a few bits that are packed in bytes or words, one in each byte: U8, row-major.
 */

enum packing {
    PACKING_LOW_FIRST,  /* two in a byte, the low half first, whatever the rows */
    PACKING_HIGH_FIRST, /* the same, the high half first */
    PACKING_ROWS,       /* a stream of bits along each row of words, low bits first */
    PACKING_COLUMNS,    /* the same along each column */
    PACKING_AWQ,        /* eight in a word of a row, in the order 0 2 4 6 1 3 5 7 */
};

struct packed {
    struct wfs_tensor tensor; /* a matrix of U8, I8 or I32; its arrays are borrowed */
    enum packing packing;
    unsigned n_bits; /* 1 to 8; 4 where two are in a byte, or eight in a word */
    uint64_t n_rows, n_cols;
};

/* Makes the codes a source, after a check that the tensor has all of them. -EINVAL, -ENOMEM. */
int unpack_new(const struct packed *packed, struct source **out);

#endif
