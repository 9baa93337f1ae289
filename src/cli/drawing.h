/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint drawn as a tree.
 */
#ifndef WFS_OUTLINE_H
#define WFS_OUTLINE_H

#include <stdio.h>

#include "cli/grouping.h"

/* Sorts the grouping and draws it, with counts and bytes. -ENOMEM. */
int outline_print(FILE *out, struct grouping *grouping);

#endif
