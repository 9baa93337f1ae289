/* SPDX-License-Identifier: MIT */
/*
 * Types of modules that a user may name, and what an adapter does to their tensors.
 */
#ifndef WFS_CLASS_H
#define WFS_CLASS_H

struct class {
    const char *name;
    enum { CLASS_OTHER, CLASS_LINEAR, CLASS_NORM, CLASS_PRELU } kind;
};

/* "Linear", "Struct:Linear", in any case; NULL when there is none of that name. "Struct:" makes it
 * exactly what Burn does, which leaves InstanceNorm and PRelu alone. */
const struct class *class_find(const char *name);

/* For messages: the names, with commas. */
extern const char class_names_text[];

#endif
