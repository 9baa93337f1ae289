/* SPDX-License-Identifier: MIT */
/*
 * Regular expressions with the syntax of Rust's `regex` crate, on PCRE2: unanchored search, Unicode
 * classes, `$` only at the very end. What the crate lacks or defines differently is refused when
 * the pattern is compiled. This room is the only one that knows PCRE2; it knows nothing of keys.
 */
#ifndef WFS_REGEX_H
#define WFS_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/error.h>

#include "base/arena.h"

struct regex;

enum { REPLACED_MAX = 1 << 20 }; /* bytes; no format takes a longer key */

/* Compiles the pattern. -EINVAL names it and says what is wrong with it. */
int regex_new(const char *pattern, struct regex **out, struct wfs_error *err);
void regex_free(struct regex *regex);

/* Returns 1 if it is found anywhere in text, else 0; -E2BIG after too much backtracking. */
int regex_search(const struct regex *regex, const char *text, struct wfs_error *err);

/*
 * Replaces all matches in text, from left to right, as the crate's replace_all does; the
 * replacement may have `$1`, `${name}` and `$$`. Returns 1 and a new text in the arena, or 0 when
 * nothing matches; -E2BIG also when the text grows past REPLACED_MAX.
 */
int regex_replace(const struct regex *regex, const char *text, const char *replacement,
                  struct arena *arena, const char **ret, struct wfs_error *err);

/* Reads digits, after an optional +, as Rust does: up to 2^64-1. Returns false for another text. */
bool regex_parse_number(const char *text, size_t n, uint64_t *ret);

#endif
