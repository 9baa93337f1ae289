/* SPDX-License-Identifier: MIT */
/*
 * Pairs: how a value with two parts is written. It knows the ways to write one, not what the parts
 * mean.
 *
 *   s/FIRST/SECOND/   with any punctuation in place of the slash that neither part contains
 *   FIRST:SECOND      divided at the first colon outside of brackets
 *   FIRST=>SECOND     the first way there was; a shell has to be kept from the > by quotes. Where
 *                     it is allowed, a text with => is read this way.
 */
#ifndef WFS_PAIR_H
#define WFS_PAIR_H

#include <stdbool.h>
#include <stddef.h>

/* Two parts of a text; the second goes on to n_second bytes. */
struct pair {
    const char *first, *second;
    size_t n_first, n_second;
};

/* What is allowed besides s/FIRST/SECOND/. */
enum pair_way { PAIR_COLON = 1, PAIR_ARROW = 2 };

/* Finds the parts. Returns false if the text is not a pair. */
bool pair_find(const char *text, unsigned ways, struct pair *ret);

#endif
