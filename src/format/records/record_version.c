/* SPDX-License-Identifier: MIT */
/*
 * Versions as text.
 */
#include "format/records/record_version.h"

#include <stdio.h>

enum { MINOR_FIRST = 8, MINOR_LAST = 21 };

unsigned record_version_minor(const char *text)
{
    unsigned minor;
    char dot = '.';
    const int n = sscanf(text, "0.%3u%c", &minor, &dot);
    return n >= 1 && dot == '.' && minor >= MINOR_FIRST && minor <= MINOR_LAST ? minor : 0;
}
