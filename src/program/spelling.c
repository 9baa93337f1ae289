/* SPDX-License-Identifier: MIT */
/*
 * The distance drops most texts after a few characters. Of names, two letters may differ, of short
 * names one.
 */
#include "program/spelling.h"

#include <string.h>

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned spelling_distance(const char *a, size_t n_a, const char *b, size_t n_b, unsigned bound)
{
    unsigned row[SPELLING_TEXT_MAX + 1];
    if (n_b > SPELLING_TEXT_MAX || (n_a > n_b ? n_a - n_b : n_b - n_a) > bound)
        return SPELLING_FAR;
    for (size_t j = 0; j <= n_b; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n_a; i++) {
        unsigned diagonal = row[0];
        unsigned row_least = row[0] = (unsigned)i;
        for (size_t j = 1; j <= n_b; j++) {
            const unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, 1 + least(row[j], row[j - 1]));
            row_least = least(row_least, row[j]);
        }
        if (row_least > bound)
            return SPELLING_FAR;
    }
    return row[n_b] <= bound ? row[n_b] : SPELLING_FAR;
}

/* Copies a name up to a '=', with dashes as underscores. */
static void copy_name(char ret[SPELLING_NAME_MAX + 1], const char *name)
{
    const size_t n = strcspn(name, "=");
    const size_t n_kept = n <= SPELLING_NAME_MAX ? n : 0;
    for (size_t i = 0; i < n_kept; i++)
        ret[i] = name[i] == '-' ? '_' : name[i];
    ret[n_kept] = '\0';
}

void spelling_start(struct spelling *spelling, const char *name)
{
    *spelling = (struct spelling){0};
    copy_name(spelling->name, name);
    spelling->distance = strlen(spelling->name) > 3 ? 3 : 2;
}

void spelling_try(struct spelling *spelling, const char *known)
{
    char text[SPELLING_NAME_MAX + 1];
    copy_name(text, known);
    if (spelling->name[0] == '\0' || text[0] == '\0' || spelling->distance == 0)
        return;
    const unsigned distance = spelling_distance(spelling->name, strlen(spelling->name), text,
                                                strlen(text), spelling->distance - 1);
    if (distance == SPELLING_FAR)
        return;
    spelling->distance = distance;
    spelling->best = known;
}
