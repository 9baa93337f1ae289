/* SPDX-License-Identifier: MIT */
/*
 * The keywords of Rust that raw identifiers can be.
 */
#include "format/records/record_keyword.h"

#include <stdlib.h>
#include <string.h>

/* In the order of strcmp. */
static const char *const keywords[] = {
    "abstract", "as",     "async",   "await",  "become",  "box",      "break", "const",
    "continue", "do",     "dyn",     "else",   "enum",    "extern",   "false", "final",
    "fn",       "for",    "gen",     "if",     "impl",    "in",       "let",   "loop",
    "macro",    "match",  "mod",     "move",   "mut",     "override", "priv",  "pub",
    "ref",      "return", "static",  "struct", "trait",   "true",     "try",   "type",
    "typeof",   "unsafe", "unsized", "use",    "virtual", "where",    "while", "yield",
};

enum { N_KEYWORD_MAX = 8 };

static int compare(const void *a, const void *b)
{
    return strcmp(a, *(const char *const *)b);
}

bool record_is_keyword(const char *name, size_t n_bytes)
{
    char copy[N_KEYWORD_MAX + 1] = "";
    if (n_bytes > N_KEYWORD_MAX)
        return false;
    memcpy(copy, name, n_bytes);
    return bsearch(copy, keywords, sizeof(keywords) / sizeof(keywords[0]), sizeof(keywords[0]),
                   compare) != NULL;
}
