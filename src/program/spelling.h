/* SPDX-License-Identifier: MIT */
/*
 * Spelling: which of the names that there are was probably meant by one that there is not.
 */
#ifndef WFS_SPELLING_H
#define WFS_SPELLING_H

#include <stddef.h>

enum {
    SPELLING_NAME_MAX = 31,
    SPELLING_TEXT_MAX = 255, /* longer texts are not compared */
    SPELLING_FAR = 1000,
};

/*
 * Returns how many characters must be inserted, removed or replaced to get from one text to the
 * other, or SPELLING_FAR when that is more than bound.
 */
unsigned spelling_distance(const char *a, size_t n_a, const char *b, size_t n_b, unsigned bound);

struct spelling {
    char name[SPELLING_NAME_MAX + 1]; /* up to a '='; empty: too long to be meant */
    const char *best;                 /* the nearest known name; NULL: none is near */
    unsigned distance;                /* letters that differ must be fewer */
};

/* Starts with the name that is not known. */
void spelling_start(struct spelling *spelling, const char *name);

/* Tries a known name, borrowed, which counts up to a '='. A dash is as good as an underscore. */
void spelling_try(struct spelling *spelling, const char *known);

#endif
