/* SPDX-License-Identifier: MIT */
/*
 * Regular expressions as Rust's `regex` crate has them, on PCRE2: unanchored search, Unicode
 * classes, `$` only at the very end. What the crate does not have, or has with another meaning, is
 * refused when the pattern is compiled.
 */
#ifndef WFS_REGEX_H
#define WFS_REGEX_H

#include <stdbool.h>

#include <weightfs/error.h>

#include "base/arena.h"

struct regex;

enum { REPLACED_MAX = 1 << 20 }; /* bytes; no format takes a longer key */

/* -EINVAL names the pattern and what is wrong with it. */
int regex_new(const char *pattern, struct regex **out, struct wfs_error *err);
void regex_free(struct regex *regex);
const char *regex_pattern(const struct regex *regex);

/* 1: found somewhere in text, 0: nowhere. -E2BIG: gave up, too much backtracking. */
int regex_search(const struct regex *regex, const char *text, struct wfs_error *err);

/*
 * All matches in text, from left to right, replaced: `$1`, `${name}`, `$$`, as the crate's
 * replace_all. 1 and a new text in the arena, or 0 when nothing matched; -E2BIG also when the text
 * grows past REPLACED_MAX; -ENOMEM.
 */
int regex_replace(const struct regex *regex, const char *text, const char *replacement,
                  struct arena *arena, const char **ret, struct wfs_error *err);

#endif
