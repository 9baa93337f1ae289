/* SPDX-License-Identifier: MIT */
/*
 * The notation of Python for graphs that were pickles: names of keys, objects as JSON.
 */
#ifndef WFS_PYTHON_JSON_H
#define WFS_PYTHON_JSON_H

#include "value/value.h"

extern const struct value_notation python_notation;

#endif
