/* SPDX-License-Identifier: MIT */
/*
 * A toy format, which tests add to a copy of the sources: what a format needs, and nothing else.
 */
#ifndef WFS_TOY_H
#define WFS_TOY_H

#include "format/core/format.h"

extern const struct wfs_format format_toy;

#endif
