/* SPDX-License-Identifier: MIT */
/*
 * A key may contain the characters of patterns: the text is compared as it is, too.
 */
#include "cli/glob.h"

#include "cli/input.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

struct glob glob_of(const char *text)
{
    return (struct glob){text, input_unescape(text)};
}

void glob_done(struct glob *glob)
{
    free(glob->unescaped);
}

bool glob_matches(const struct glob *glob, const char *key)
{
    return strcmp(glob->text, key) == 0 || fnmatch(glob->text, key, 0) == 0 ||
           (glob->unescaped != NULL && strcmp(glob->unescaped, key) == 0);
}

bool glob_is_in(const struct glob *glob, const char *key)
{
    return strstr(key, glob->text) != NULL ||
           (glob->unescaped != NULL && strstr(key, glob->unescaped) != NULL);
}
