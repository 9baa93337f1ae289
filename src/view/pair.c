/* SPDX-License-Identifier: MIT */
/*
 * Finds the two parts of a value.
 */
#include "view/pair.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <weightfs/view.h>

static bool cut_arrow(const char *text, struct pair *ret)
{
    const char *arrow = strstr(text, "=>");
    if (arrow == NULL)
        return false;
    *ret = (struct pair){text, arrow + 2, (size_t)(arrow - text), strlen(arrow + 2)};
    return true;
}

/* As sed writes it, with exactly three delimiters. */
static bool cut_delimiters(const char *text, struct pair *ret)
{
    const char delimiter = text[0] == 's' ? text[1] : '\0';
    if (!ispunct((unsigned char)delimiter) || delimiter == '\\')
        return false;
    const char *first = text + 2, *middle = strchr(first, delimiter);
    const char *end = middle != NULL ? strchr(middle + 1, delimiter) : NULL;
    if (end == NULL || end[1] != '\0')
        return false;
    *ret = (struct pair){first, middle + 1, (size_t)(middle - first), (size_t)(end - middle - 1)};
    return true;
}

/* Colons in (?:groups) and [[:classes:]] do not divide, and neither does an escaped one. */
static bool cut_colon(const char *text, struct pair *ret)
{
    size_t depth = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '(' || *at == '[')
            depth++;
        else if ((*at == ')' || *at == ']') && depth > 0)
            depth--;
        else if (*at == ':' && depth == 0) {
            *ret = (struct pair){text, at + 1, (size_t)(at - text), strlen(at + 1)};
            return true;
        }
    }
    return false;
}

bool pair_find(const char *text, unsigned ways, struct pair *ret)
{
    return ((ways & PAIR_ARROW) != 0 && cut_arrow(text, ret)) || cut_delimiters(text, ret) ||
           ((ways & PAIR_COLON) != 0 && cut_colon(text, ret));
}

char *wfs_view_pair(const char *first, const char *second)
{
    static const char delimiters[] = "/|,#%@!~;:_\"'&=<>-+*?.$^`()[]{}";
    char *text = NULL;
    for (const char *d = delimiters; *d != '\0'; d++) {
        if (strchr(first, *d) == NULL && strchr(second, *d) == NULL)
            return asprintf(&text, "s%c%s%c%s%c", *d, first, *d, second, *d) < 0 ? NULL : text;
    }
    return asprintf(&text, "%s=>%s", first, second) < 0 ? NULL : text;
}
