/* SPDX-License-Identifier: MIT */
/*
 * Two letters may differ, in a short name one.
 */
#include "program/spelling.h"

#include <stdbool.h>
#include <string.h>

static bool is_same_letter(char a, char b)
{
    return a == b || (a == '-' && b == '_') || (a == '_' && b == '-');
}

/* Returns how many letters must be inserted, removed or changed. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned row[SPELLING_NAME_MAX + 1];
    const size_t n_b = strlen(b);
    for (size_t j = 0; j <= n_b; j++)
        row[j] = (unsigned)j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        unsigned diagonal = row[0]++;
        for (size_t j = 0; j < n_b; j++) {
            const unsigned change = diagonal + !is_same_letter(a[i], b[j]);
            diagonal = row[j + 1];
            const unsigned gap = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            row[j + 1] = change < gap ? change : gap;
        }
    }
    return row[n_b];
}

static void copy_name(char ret[SPELLING_NAME_MAX + 1], const char *name)
{
    const size_t n = strcspn(name, "=");
    memcpy(ret, name, n <= SPELLING_NAME_MAX ? n : 0);
    ret[n <= SPELLING_NAME_MAX ? n : 0] = '\0';
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
    if (spelling->name[0] == '\0' || text[0] == '\0')
        return;
    const unsigned distance = edit_distance(spelling->name, text);
    if (distance >= spelling->distance)
        return;
    spelling->distance = distance;
    spelling->best = known;
}
