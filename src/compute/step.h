/* SPDX-License-Identifier: MIT */
/*
 * What can be done to a tensor, one step after the other. v is what it has become so far.
 */
#ifndef WFS_STEP_H
#define WFS_STEP_H

#include <weightfs/tensor.h>

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

#endif
