/* SPDX-License-Identifier: MIT */
/*
 * A computation from the inside, the patches of its result (some rows of the whole, one under the
 * other, or a part of one row), and the factors of its steps for a patch.
 */
#ifndef WFS_FACTORS_H
#define WFS_FACTORS_H

#include <pthread.h>
#include <stdatomic.h>

#include "compute/shelf.h"
#include "compute/step.h"

/* What a step finds out about the whole tensor, once. */
struct findings_of_step {
    _Atomic double *norms; /* malloc'ed, by row or element of the vector; -1: not known yet */
    size_t n_norms;
    atomic_bool is_known; /* all norms of columns are, or the weights */
    double weights[2];    /* of SLERP: of the base and of A */
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
    pthread_mutex_t lock; /* of finding out */
    char *text;
};

struct patch {
    uint64_t row, col; /* row: counted through all batches; all rows are of one batch */
    size_t n_rows, n_cols;
};

enum { PATCH_ELEMS = 16384 }; /* elements that are computed together, where a row is not longer */

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

/* Returns the vector of a step, to be given back to the shelf. */
int factors_take_vector(struct work *work, const struct compute_step *step, const double **ret);

/* Returns the key of the rotations of a step on the shelf. */
struct shelf_key factors_key_of_rotations(const struct computation *c,
                                          const struct compute_step *step);

#endif
