/* SPDX-License-Identifier: MIT */
/*
 * The unused key that a missing one may be, suggested as Burn does.
 */
#ifndef WFS_SIMILARITY_H
#define WFS_SIMILARITY_H

#include <stdbool.h>

#include "view/report.h"

/* Returns the Jaro similarity of two texts, on characters: 0 to 1. */
double similarity_jaro(const char *a, const char *b);

/* Returns true if an inner segment of the key looks like an enum variant. */
bool similarity_has_variant(const char *key);

/*
 * Returns the suggestion for a missing key: the key without its first inner segment that looks like
 * an enum variant, if that is unused; else the most similar unused key, from 0.7 on; or NULL.
 */
const char *similarity_suggest(const char *missing, const struct report_lines *unused);

#endif
