/* SPDX-License-Identifier: MIT */
/*
 * The syntax of Rust's `regex` crate, translated to that of PCRE2.
 */
#ifndef WFS_DIALECT_H
#define WFS_DIALECT_H

/*
 * Writes the pattern for PCRE2 to *ret, malloc'ed. -EINVAL when it has something that the crate
 * refuses or that is not supported, and *ret_problem says what (static text); -ENOMEM.
 */
int dialect_translate(const char *pattern, char **ret, const char **ret_problem);

#endif
