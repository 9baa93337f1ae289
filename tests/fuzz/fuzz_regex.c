/* SPDX-License-Identifier: MIT */
/*
 * Regular expressions: the input is a pattern, a replacement and a text, on a line each.
 */
#include "view/regex/regex.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void look(const struct regex *regex, const char *replacement, const char *text)
{
    struct arena arena = {0};
    struct wfs_error err = {0}, other = {0};
    const char *result = NULL;
    const int found = regex_search(regex, text, &err);
    const int replaced = regex_replace(regex, text, replacement, &arena, &result, &other);
    /* One may give up where the other does not: replacing looks on behind the first match. */
    if ((found >= 0 && replaced >= 0 && found != replaced) || (replaced == 1 && result == NULL) ||
        (found < 0 && err.code != -found) || (replaced < 0 && other.code != -replaced))
        abort();
    arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char *input = strndup((const char *)data, n_bytes), *rest = input;
    const char *pattern = strsep(&rest, "\n");
    const char *replacement = rest == NULL ? "" : strsep(&rest, "\n");
    struct regex *regex;
    struct wfs_error err = {0};
    const int code = regex_new(pattern, &regex, &err);
    if (code == 0) {
        look(regex, replacement, rest == NULL ? "" : rest);
        regex_free(regex);
    } else if (err.code != -code || err.text[0] == '\0') {
        abort();
    }
    free(input);
    return 0;
}
