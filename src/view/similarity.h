/* SPDX-License-Identifier: MIT */
/*
 * Which of the unused keys a missing one may be, as Burn suggests it.
 */
#ifndef WFS_SIMILARITY_H
#define WFS_SIMILARITY_H

#include <stdbool.h>

#include "view/report.h"

/* Between 0 and 1, as Burn computes it (Jaro, on characters). */
double similarity_jaro(const char *a, const char *b);

/* Whether an inner segment of the key looks like an enum variant. */
bool similarity_has_variant(const char *key);

/*
 * The suggestion for a missing key: the key without its first inner segment that looks like an enum
 * variant, if that is among the unused; else the most similar one from 0.7 on; NULL.
 */
const char *similarity_suggest(const char *missing, const struct report_lines *unused);

#endif
