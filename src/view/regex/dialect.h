/* SPDX-License-Identifier: MIT */
/*
 * The syntax of the `regex` crate, told in that of PCRE2.
 */
#ifndef WFS_DIALECT_H
#define WFS_DIALECT_H

/*
 * Writes the pattern as PCRE2 wants it to *ret, malloc'ed. Returns NULL, or what in it the crate
 * refuses, or what we do not take; static text.
 */
const char *dialect_translate(const char *pattern, char **ret);

#endif
