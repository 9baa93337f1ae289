/* SPDX-License-Identifier: MIT */
/*
 * The inside of a computation, for compute.c, which makes it, and evaluation.c, which does its
 * steps for a patch: some rows of the whole result, one under the other, or a part of one row.
 */
#ifndef WFS_EVALUATION_H
#define WFS_EVALUATION_H

#include <pthread.h>
#include <stdatomic.h>

#include "compute/step.h"

/* What a step finds out about the whole tensor, once. */
struct findings_of_step {
    _Atomic uint64_t *norms; /* malloc'ed: the bits of a double, by row or element of the vector; 0:
                                not known yet */
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

/* Computes the patch. Negative errno as wfs_tensor_read. */
int evaluate(struct work *work, const struct patch *patch, double *out);

#endif
