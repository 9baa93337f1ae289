/* SPDX-License-Identifier: MIT */
/*
 * Shapes in growing text.
 */
#ifndef WFS_SHAPE_H
#define WFS_SHAPE_H

#include <weightfs/strbuf.h>
#include <weightfs/tensor.h>

/* Adds "[2, 3]". */
void shape_print(struct strbuf *text, const struct wfs_shape *shape);

#endif
