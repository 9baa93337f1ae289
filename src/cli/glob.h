/* SPDX-License-Identifier: MIT */
/*
 * Keys that a pattern of a shell names.
 */
#ifndef WFS_GLOB_H
#define WFS_GLOB_H

#include <stdbool.h>

struct glob {
    const char *text;
    char *unescaped; /* malloc'ed: the text as a key that was printed; NULL when out of memory */
};

struct glob glob_of(const char *text);
void glob_done(struct glob *glob);

/* Returns whether it matches the whole key, or is the key, also as it is printed. '*' matches dots
 * too. */
bool glob_matches(const struct glob *glob, const char *key);

/* Returns whether the text, or what is printed so, is a part of the key. */
bool glob_is_in(const struct glob *glob, const char *key);

#endif
