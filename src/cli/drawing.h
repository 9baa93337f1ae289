/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint drawn as a tree.
 */
#ifndef WFS_DRAWING_H
#define WFS_DRAWING_H

#include <stdio.h>

#include "cli/grouping.h"

/* Sorts the grouping and draws it, with counts and bytes. -ENOMEM. */
int drawing_print(FILE *out, struct grouping *grouping);

#endif
