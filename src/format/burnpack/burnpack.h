/* SPDX-License-Identifier: MIT */
/*
 * The room of the Burnpack format. It knows what Burn writes and reads in all its releases: the
 * header, the CBOR behind it with the dialects of its dtypes, and the two layouts of the data. What
 * parameters and modules of Burn mean is left to the views.
 */
#ifndef WFS_BURNPACK_H
#define WFS_BURNPACK_H

#include "format/core/format.h"

extern const struct wfs_format format_burnpack;

#endif
