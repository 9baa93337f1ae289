/* SPDX-License-Identifier: MIT */
/*
 * The field `dtype` of a tensor, in and out.
 */
#ifndef WFS_BURNPACK_DTYPE_H
#define WFS_BURNPACK_DTYPE_H

#include "format/burnpack/burnpack_load.h"
#include "format/burnpack/cbor_out.h"

/* Takes the value of the field. */
int burnpack_dtype_take(struct burnpack_load *load, struct burnpack_draft *draft);

/* Returns the name of a dtype that the format has by name alone, else NULL. */
const char *burnpack_dtype_name(enum wfs_dtype dtype);

/* Returns whether the text is what a reader makes of a quantization scheme: a JSON object. */
bool burnpack_dtype_is_scheme(const char *text);

/* Writes the dtype of the tensor, which the format can hold. */
void burnpack_dtype_put(struct strbuf *out, const struct wfs_tensor *tensor);

#endif
