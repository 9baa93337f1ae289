/* SPDX-License-Identifier: MIT */
/*
 * A computation from the inside, the patches of its result (some rows of the whole, one under the
 * other, or a part of one row), and the factors of its steps for a patch.
 */
#ifndef WFS_PATCH_H
#define WFS_PATCH_H

#include "base/reader_lock.h"
#include "compute/compute.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Decoded factors that are in use, and as many of the others as fit: one shelf for the process,
 * bounded, with its own lock.
 */

/* What an array of doubles is: number `part` of a step of a computation. */
struct shelf_key {
    uint64_t owner, step, part;
};

/* Fills the array. Negative errno. */
typedef int shelf_fill(void *ctx, double *to);

/*
 * Returns the array of n doubles, which is filled when nobody has it yet: once, also when many ask
 * for it. It stays until shelf_give_back is called with it. -ENOMEM, -EINTR, or what fill returned.
 */
int shelf_take(const struct wfs_io *io, const struct shelf_key *key, size_t n, shelf_fill *fill,
               void *ctx, const double **ret);
void shelf_give_back(const double *array);

/* Forgets what the owner has. Nobody uses it. */
void shelf_forget(uint64_t owner);

/* What a step finds out about the whole tensor, once. */
struct findings_of_step {
    _Atomic double *norms; /* malloc'ed, by row or element of the vector; -1: not known yet */
    size_t n_norms;
    atomic_bool is_known;      /* all norms of columns are, or the weights */
    _Atomic double weights[2]; /* of SLERP: of the base and of A */
};

struct computation {
    struct wfs_tensor base;
    uint64_t id;                        /* no other computation of the process has or had it */
    uint64_t n_batches, n_rows, n_cols; /* n_rows: of one batch */
    uint64_t n_align;                   /* columns are computed in multiples of it */
    bool is_batch;
    bool needs_base; /* a step looks at the base once more */
    bool is_single;  /* it is a source of F32: what comes out of each step is rounded to that */
    struct compute_step *steps;
    struct findings_of_step *found; /* by step */
    size_t n_steps, n_room, n_found_room;
    struct reader_lock lock; /* of finding out */
    char *text;
};

struct patch {
    uint64_t row, col; /* row: counted through all batches; all rows are of one batch */
    size_t n_rows, n_cols;
};

enum { PATCH_ELEMS = 32768 }; /* elements that are computed together, where a row is not longer */

/* Memory for the work on patches of up to a number of elements. */
struct work {
    const struct wfs_io *io; /* who reads */
    struct computation *computation;
    double *base, *term, *other, *left; /* malloc'ed as needed */
    size_t n_elems, n_left;
    char *bytes; /* malloc'ed: DECODE_BYTES */
};

int work_init(struct work *work, const struct wfs_io *io, struct computation *computation,
              size_t n_elems);
void work_done(struct work *work);

enum { DECODE_BYTES = 65536 }; /* of stored elements at a time */

/* Reads n elements from number `first` on. bytes: DECODE_BYTES of scratch. */
int factors_decode(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t first,
                   size_t n, double *out, char *bytes);

/* Reads the base, or what the patch has of a matrix of a step, or what a step adds, without its
 * scale. */
int factors_read_base(struct work *work, const struct patch *patch, double *out);
int factors_read_base_single(struct work *work, const struct patch *patch, float *out);
int factors_read_matrix(struct work *work, const struct compute_step *step,
                        const struct compute_matrix *m, const struct patch *patch, double *to);
int factors_find_term(struct work *work, const struct compute_step *step, const struct patch *patch,
                      double *to);

/* Returns how many elements of memory there are from row to row of a right factor. A multiple of 4
 * KiB, as rows often have, would let them push each other out of the nearest cache. */
uint64_t factors_row_step(uint64_t n_cols);

/* Returns the vector of a step, to be given back to the shelf. */
int factors_take_vector(struct work *work, const struct compute_step *step, const double **ret);

/* Returns the key of the rotations of a step on the shelf. */
struct shelf_key factors_key_of_rotations(const struct computation *c,
                                          const struct compute_step *step);

/*
 * The steps of a computation, done for a patch.
 */

/* Computes the patch. Negative errno as wfs_tensor_read. */
int evaluate(struct work *work, const struct patch *patch, double *out);

/* The same where the computation is single. */
int evaluate_single(struct work *work, const struct patch *patch, float *out);

/* Returns whether F32 has the base and, rounded, all that comes out of a step: products. */
bool evaluation_can_be_single(const struct computation *computation);

/*
 * The loops over doubles, which become vector code. Each element gets the same operations in the
 * same order however the arrays are cut.
 */

/* to[row][i] = left[row][0] * right[0][i] + left[row][1] * right[1][i] ..., from left to right; the
 * rows of right begin n_step apart, those of the result n_to. */
void kernel_multiply(const double *left, size_t n_rows, size_t n_rank, const double *right,
                     size_t n_step, size_t n, double *to, size_t n_to);

/* to[i] += scale * from[i] */
void kernel_add(double *to, double scale, const double *from, size_t n);

/* to[i] += scale * (from[i] - base[i]) */
void kernel_towards(double *to, double scale, const double *from, const double *base, size_t n);

/* to[i] *= scale */
void kernel_scale(double *to, double scale, size_t n);

/* The same in single precision: what the product of two such numbers in double precision is
 * rounded to. */
void kernel_scale_single(float *to, float scale, size_t n);

/* Rounds each to F32. */
void kernel_round(double *to, size_t n);

/* to[i] *= from[i] */
void kernel_product(double *to, const double *from, size_t n);

/* sums[i] += from[i]^2 */
void kernel_add_squares(double *sums, const double *from, size_t n);

#endif
