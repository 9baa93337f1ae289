/* SPDX-License-Identifier: MIT */
/*
 * Which keys of a checkpoint were probably meant by one that it does not have: those that differ by
 * a few characters, or contain what was typed.
 */
#ifndef WFS_SUGGESTION_H
#define WFS_SUGGESTION_H

#include <weightfs/catalog.h>

enum { SUGGESTION_MAX = 3 };

struct suggestion {
    char text[SUGGESTION_MAX * WFS_QUOTE_MAX + 64];
};

/* Returns "; did you mean 'a', 'b' or 'c'?" with the nearest keys of tensors, and names of values
 * if asked. Empty: there are none. */
struct suggestion suggestion_of_keys(const struct wfs_catalog *catalog, const char *typed,
                                     bool has_values);

#endif
