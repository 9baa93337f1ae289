/* SPDX-License-Identifier: MIT */
/*
 * Scalars of numpy in a pickle.
 */
#ifndef WFS_PYTHON_SCALAR_H
#define WFS_PYTHON_SCALAR_H

#include "value/value_json.h"

/* Writes a call that makes a scalar of numpy. Returns false, having written nothing, when it does
 * not make one. */
bool python_write_scalar(struct json_writer *writer, uint32_t id);

#endif
