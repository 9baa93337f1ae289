/* SPDX-License-Identifier: MIT */
/*
 * Near names by edit distance, with a bound that drops most of them after a few characters.
 */
#include "cli/suggestion.h"

#include <stdio.h>
#include <string.h>

enum {
    N_KEY_MAX = 255,  /* longer keys are not compared */
    DISTANCE_MAX = 8, /* more is another name, not a slip */
    FAR = 1000,
};

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Returns the Levenshtein distance, or FAR when it is above bound. */
static unsigned distance(const char *a, size_t n_a, const char *b, size_t n_b, unsigned bound)
{
    unsigned row[N_KEY_MAX + 1];
    if ((n_a > n_b ? n_a - n_b : n_b - n_a) > bound)
        return FAR;
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
            return FAR;
    }
    return row[n_b] <= bound ? row[n_b] : FAR;
}

/*
 * Returns the distance of the name; at FAR and above it is not suggested. A name that contains the
 * typed one ranks after every misspelling.
 */
static unsigned score(const char *wanted, size_t n_wanted, const char *key)
{
    const size_t n_key = strnlen(key, N_KEY_MAX + 1);
    if (n_key > N_KEY_MAX || n_wanted > N_KEY_MAX)
        return FAR;
    const unsigned bound = least(DISTANCE_MAX, ((unsigned)n_wanted + 1) / 3);
    const unsigned slips = distance(wanted, n_wanted, key, n_key, bound);
    if (slips == FAR && n_wanted >= 3 && n_key > n_wanted && strstr(key, wanted) != NULL)
        return DISTANCE_MAX + (unsigned)(n_key - n_wanted);
    return slips;
}

void suggestion_offer(struct suggestion *suggestion, const char *wanted, const char *name)
{
    const unsigned s = score(wanted, strlen(wanted), name);
    size_t at = suggestion->n_names;
    while (at > 0 && s < suggestion->scores[at - 1])
        at--;
    if (s >= FAR || at == SUGGESTION_MAX)
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
