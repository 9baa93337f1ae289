/* SPDX-License-Identifier: MIT */
/*
 * Objects of few plain attributes that are read past the graph: millions of them describe the
 * chunks of a distributed checkpoint.
 */
#ifndef WFS_PICKLE_SKIM_H
#define WFS_PICKLE_SKIM_H

#include "pickle/pickle_vm.h"

/*
 * The class at the top of the stack was just fetched. Where the input goes on with an object of it
 * that is folded, reads it and replaces the class by the record; where not, or where anything about
 * it is unusual, nothing happens. -E2BIG, -ENOMEM.
 */
int skim_object(struct pickle *p);

#endif
