/* SPDX-License-Identifier: MIT */
/*
 * Character classes of the `regex` crate: classes inside of classes and set operations, which
 * PCRE2 has to be told as look-ahead; and escapes, which are the same inside and outside.
 */
#ifndef WFS_DIALECT_CLASS_H
#define WFS_DIALECT_CLASS_H

#include <stdio.h>

/* Both read at *at, which moves on, and write to out. NULL, or what is wrong. */
const char *dialect_class(const char **at, FILE *out);
const char *dialect_escape(const char **at, FILE *out);

#endif
