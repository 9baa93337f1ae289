/* SPDX-License-Identifier: MIT */
/*
 * The steps of a computation, done for a patch.
 */
#ifndef WFS_EVALUATION_H
#define WFS_EVALUATION_H

#include "compute/factors.h"

/* Computes the patch. Negative errno as wfs_tensor_read. */
int evaluate(struct work *work, const struct patch *patch, double *out);

/* The same where the computation is single. */
int evaluate_single(struct work *work, const struct patch *patch, float *out);

/* Returns whether F32 has the base and, rounded, all that comes out of a step: products. */
bool evaluation_can_be_single(const struct computation *computation);

#endif
