/* SPDX-License-Identifier: MIT */
/*
 * The room of Burn's records. It knows what the recorders of Burn 0.8 to 0.21 write: MessagePack
 * and JSON, with gzip or without, in the three dialects of their tensors. What parameters and
 * modules of Burn mean is left to the views.
 */
#ifndef WFS_RECORDS_H
#define WFS_RECORDS_H

#include "format/core/format.h"

extern const struct wfs_format format_records;

/*
 * The state of an optimizer of Burn, whose names in records and in Burnpacks differ: up to Burn
 * 0.21 it is nested below the id of the parameter as a text, "V1" and "Rank2"; Burn 0.22 puts the
 * number of the id in front of each name, and has the rank as a scalar. Renames all tensors and
 * values of the catalog as the format has them, when all of them are such a state and the format
 * that they come from names them in the other way. -ENOMEM.
 */
int optimizer_fit(struct wfs_catalog *catalog, const struct wfs_format *format);

#endif
