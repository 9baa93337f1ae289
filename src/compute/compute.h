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
#include "base/source.h"
#include "compute/step.h"

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

#endif
