/* SPDX-License-Identifier: MIT */
/*
 * The state of an optimizer of Burn, whose names in records and in Burnpacks differ: up to Burn
 * 0.21 it is nested below the id of the parameter as a text, "V1" and "Rank2"; Burn 0.22 puts the
 * number of the id in front of each name, and has the rank as a scalar.
 */
#ifndef WFS_OPTIMIZER_H
#define WFS_OPTIMIZER_H

#include <weightfs/traits.h>

#include "tensor/catalog.h"

/*
 * Renames all tensors and values of the catalog as the format has them, when all of them are such a
 * state and the format that they come from names them in the other way. -ENOMEM.
 */
int optimizer_fit(struct wfs_catalog *catalog, const struct wfs_format *format);

#endif
