/* SPDX-License-Identifier: MIT */
/*
 * The fields `metadata` and `scalars`.
 */
#ifndef WFS_BURNPACK_PAIRS_H
#define WFS_BURNPACK_PAIRS_H

#include "format/burnpack/burnpack_load.h"

/* Take the values of the two fields. */
int burnpack_pairs_take_metadata(struct burnpack_load *load, struct burnpack_draft *none);
int burnpack_pairs_take_scalars(struct burnpack_load *load, struct burnpack_draft *none);

/* Puts the pairs into the catalog, the last of each name. */
int burnpack_pairs_fill(struct burnpack_load *load);

#endif
