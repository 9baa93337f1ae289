/* SPDX-License-Identifier: MIT */
/*
 * The steps of a computation, done for a patch.
 */
#ifndef WFS_EVALUATION_H
#define WFS_EVALUATION_H

#include "compute/factors.h"

/* Computes the patch. Negative errno as wfs_tensor_read. */
int evaluate(struct work *work, const struct patch *patch, double *out);

#endif
