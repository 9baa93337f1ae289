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

#endif
