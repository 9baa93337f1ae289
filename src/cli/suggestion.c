/* SPDX-License-Identifier: MIT */
/*
 * A key is near when few of its characters differ, or when it contains what was typed.
 */
#include "cli/suggestion.h"

#include "program/spelling.h"

#include <stdio.h>
#include <string.h>

enum { DISTANCE_MAX = 8 }; /* more is another name, not a slip */

/*
 * Returns the distance of the name; at SPELLING_FAR and above it is not suggested. A name that
 * contains the typed one ranks after every misspelling.
 */
static unsigned score(const char *wanted, size_t n_wanted, const char *key)
{
    const size_t n_key = strnlen(key, SPELLING_TEXT_MAX + 1);
    if (n_key > SPELLING_TEXT_MAX || n_wanted > SPELLING_TEXT_MAX)
        return SPELLING_FAR;
    const unsigned third = ((unsigned)n_wanted + 1) / 3;
    const unsigned bound = third < DISTANCE_MAX ? third : DISTANCE_MAX;
    const unsigned slips = spelling_distance(wanted, n_wanted, key, n_key, bound);
    if (slips == SPELLING_FAR && n_wanted >= 3 && n_key > n_wanted && strstr(key, wanted) != NULL)
        return DISTANCE_MAX + (unsigned)(n_key - n_wanted);
    return slips;
}

void suggestion_offer(struct suggestion *suggestion, const char *wanted, const char *name)
{
    const unsigned s = score(wanted, strlen(wanted), name);
    size_t at = suggestion->n_names;
    while (at > 0 && s < suggestion->scores[at - 1])
        at--;
    if (s >= SPELLING_FAR || at == SUGGESTION_MAX)
        return;
    suggestion->n_names -= suggestion->n_names == SUGGESTION_MAX;
    for (size_t i = suggestion->n_names++; i > at; i--) {
        suggestion->scores[i] = suggestion->scores[i - 1];
        suggestion->names[i] = suggestion->names[i - 1];
    }
    suggestion->scores[at] = s;
    suggestion->names[at] = name;
}

struct suggestion_text suggestion_text(const struct suggestion *suggestion)
{
    struct suggestion_text ret = {""};
    size_t n_text = 0;
    for (size_t i = 0; i < suggestion->n_names; i++) {
        const char *before = i == 0 ? "; did you mean" : i + 1 == suggestion->n_names ? " or" : ",";
        n_text += (size_t)snprintf(ret.text + n_text, sizeof(ret.text) - n_text, "%s '%s'%s",
                                   before, wfs_quote(suggestion->names[i]).text,
                                   i + 1 == suggestion->n_names ? "?" : "");
    }
    return ret;
}
