/* SPDX-License-Identifier: MIT */
/*
 * Shapes in growing text and in arenas.
 */
#ifndef WFS_SHAPE_H
#define WFS_SHAPE_H

#include <weightfs/strbuf.h>
#include <weightfs/tensor.h>

#include "base/arena.h"

/* Replaces borrowed dims by a copy in the arena. -ENOMEM. */
int shape_own(struct wfs_shape *shape, struct arena *arena);

/* Adds "[2, 3]". */
void shape_print(struct strbuf *text, const struct wfs_shape *shape);

#endif
