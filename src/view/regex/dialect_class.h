/* SPDX-License-Identifier: MIT */
/*
 * Character classes of Rust's `regex` crate: nested classes and set operations, which PCRE2 needs
 * as look-ahead; and escapes, which are the same inside and outside of a class.
 */
#ifndef WFS_DIALECT_CLASS_H
#define WFS_DIALECT_CLASS_H

#include <weightfs/strbuf.h>

/* Each reads at *at, which moves on, and appends to out. Returns NULL, or what is wrong. */
const char *dialect_class(const char **at, struct strbuf *out);
const char *dialect_escape(const char **at, struct strbuf *out);

#endif
