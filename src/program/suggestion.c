/* SPDX-License-Identifier: MIT */
/*
 * A name that contains the typed one ranks after every misspelling.
 */
#include "program/suggestion.h"

#include "program/settings.h"

#include <weightfs/value.h>

#include <stdio.h>
#include <string.h>

/* The nearest names so far. A zeroed struct has none. */
struct nearest {
    const char *names[SUGGESTION_MAX]; /* the nearest first; borrowed */
    unsigned scores[SUGGESTION_MAX];
    size_t n_names;
};

enum { DISTANCE_MAX = 8 }; /* more is another name, not a slip */

/* Returns the distance of the name; at SPELLING_FAR and above it is not suggested. */
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

/* Takes a name that exists if it differs from the typed one by a few characters, or contains it. */
static void offer(struct nearest *nearest, const char *wanted, const char *name)
{
    const unsigned s = score(wanted, strlen(wanted), name);
    size_t at = nearest->n_names;
    while (at > 0 && s < nearest->scores[at - 1])
        at--;
    if (s >= SPELLING_FAR || at == SUGGESTION_MAX)
        return;
    nearest->n_names -= nearest->n_names == SUGGESTION_MAX;
    for (size_t i = nearest->n_names++; i > at; i--) {
        nearest->scores[i] = nearest->scores[i - 1];
        nearest->names[i] = nearest->names[i - 1];
    }
    nearest->scores[at] = s;
    nearest->names[at] = name;
}

struct suggestion suggestion_of_keys(const struct wfs_catalog *catalog, const char *typed,
                                     bool has_values)
{
    struct nearest near = {0};
    struct suggestion ret = {""};
    size_t n_text = 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++)
        offer(&near, typed, wfs_catalog_tensor(catalog, i)->key);
    for (size_t i = 0; has_values && i < wfs_catalog_n_values(catalog); i++)
        offer(&near, typed, wfs_catalog_value_name(catalog, i));
    for (size_t i = 0; i < near.n_names; i++) {
        const char *before = i == 0 ? "; did you mean" : i + 1 == near.n_names ? " or" : ",";
        n_text +=
            (size_t)snprintf(ret.text + n_text, sizeof(ret.text) - n_text, "%s '%s'%s", before,
                             wfs_quote(near.names[i]).text, i + 1 == near.n_names ? "?" : "");
    }
    return ret;
}
