/* SPDX-License-Identifier: MIT */
/*
 * Near keys by edit distance, with a bound that lets most keys be dropped after a few characters.
 */
#include "cli/suggestion.h"

#include <string.h>

enum {
    N_KEY_MAX = 255,  /* longer keys are not compared */
    DISTANCE_MAX = 8, /* more is another name, not a slip */
    N_SUGGESTIONS = 3,
    FAR = 1000,
};

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Levenshtein distance, or FAR when it is above bound. */
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

/* Small is near; FAR and above is nothing to suggest. A key that contains the wanted one ranks
 * after every slip. */
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

size_t suggestion_find(const struct wfs_catalog *catalog, const char *key, const char *ret[3])
{
    const size_t n_key = strlen(key);
    unsigned scores[N_SUGGESTIONS];
    size_t n = 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const char *candidate = wfs_catalog_tensor(catalog, i)->key;
        const unsigned s = score(key, n_key, candidate);
        size_t at = n;
        while (at > 0 && s < scores[at - 1])
            at--;
        if (s >= FAR || at == N_SUGGESTIONS)
            continue;
        n -= n == N_SUGGESTIONS;
        memmove(&scores[at + 1], &scores[at], (n - at) * sizeof(scores[0]));
        memmove(&ret[at + 1], &ret[at], (n - at) * sizeof(ret[0]));
        scores[at] = s;
        ret[at] = candidate;
        n++;
    }
    return n;
}
