/* SPDX-License-Identifier: MIT */
/*
 * The CBOR of a Burnpack.
 */
#ifndef WFS_BURNPACK_FIELDS_H
#define WFS_BURNPACK_FIELDS_H

#include "format/burnpack/burnpack_load.h"

/* Parses it into tensors, pairs and findings. */
int burnpack_fields_parse(struct burnpack_load *load);

#endif
