/* SPDX-License-Identifier: MIT */
/*
 * The names nearest to one that does not exist: keys, which may be many.
 */
#ifndef WFS_SUGGESTION_H
#define WFS_SUGGESTION_H

#include <stddef.h>

#include <weightfs/error.h>

enum { SUGGESTION_MAX = 3 };

/* The nearest names so far. A zeroed struct has none. */
struct suggestion {
    const char *names[SUGGESTION_MAX]; /* the nearest first; borrowed */
    unsigned scores[SUGGESTION_MAX];
    size_t n_names;
};

/* Takes a name that exists if it differs from the typed one by a few characters, or contains it. */
void suggestion_offer(struct suggestion *suggestion, const char *wanted, const char *name);

/* Returns "; did you mean 'a', 'b' or 'c'?", or "" without names. */
struct suggestion_text {
    char text[SUGGESTION_MAX * WFS_QUOTE_MAX + 64];
};
struct suggestion_text suggestion_text(const struct suggestion *suggestion);

#endif
