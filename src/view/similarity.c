/* SPDX-License-Identifier: MIT */
/*
 * The unused key that a missing one may be, suggested as Burn does: the Jaro similarity, and keys
 * without a variant.
 */
#include "view/report.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MAX_CHARS = 512, MAX_COMPARED = 20000 };

/* Decodes code points; a byte that is not UTF-8 becomes a code point of its own. */
static size_t decode(const char *text, uint32_t *ret)
{
    size_t n = 0;
    for (const uint8_t *at = (const uint8_t *)text; *at != 0 && n < MAX_CHARS;) {
        const size_t n_more = *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : *at >= 0xc0 ? 1 : 0;
        uint32_t code = n_more == 0 ? *at : *at & (0x3fu >> n_more);
        at++;
        for (size_t i = 0; i < n_more && (*at & 0xc0) == 0x80; i++)
            code = code << 6 | (*at++ & 0x3f);
        ret[n++] = code;
    }
    return n;
}

double similarity_jaro(const char *a, const char *b)
{
    uint32_t x[MAX_CHARS], y[MAX_CHARS];
    bool is_taken[MAX_CHARS] = {false};
    const size_t n_x = decode(a, x), n_y = decode(b, y);
    if (n_x == 0 || n_y == 0)
        return n_x == n_y;
    if (n_x == 1 && n_y == 1)
        return x[0] == y[0];
    const size_t longest = n_x > n_y ? n_x : n_y, range = longest / 2 - 1;
    size_t n_matches = 0, n_turned = 0, last = 0;
    for (size_t i = 0; i < n_x; i++) {
        const size_t from = i > range ? i - range : 0;
        const size_t to = i + range + 1 < n_y ? i + range + 1 : n_y;
        for (size_t j = from; j < to; j++) {
            if (x[i] != y[j] || is_taken[j])
                continue;
            is_taken[j] = true;
            n_turned += n_matches > 0 && j < last;
            last = j;
            n_matches++;
            break;
        }
    }
    if (n_matches == 0)
        return 0;
    const double m = (double)n_matches;
    return (m / (double)n_x + m / (double)n_y + (m - (double)n_turned) / m) / 3;
}

bool similarity_is_variant(const char *segment, size_t n)
{
    bool has_lower = false;
    for (size_t i = 0; i < n; i++)
        has_lower = has_lower || (segment[i] >= 'a' && segment[i] <= 'z');
    return n > 1 && segment[0] >= 'A' && segment[0] <= 'Z' && has_lower;
}

/* Returns the dot before the first inner segment that looks like a variant, or NULL. */
static const char *find_variant(const char *key)
{
    const char *last = strrchr(key, '.');
    const char *at = strchr(key, '.');
    while (at != NULL && at < last) {
        const size_t n = strcspn(at + 1, ".");
        if (similarity_is_variant(at + 1, n))
            return at;
        at += 1 + n;
    }
    return NULL;
}

bool similarity_has_variant(const char *key)
{
    return find_variant(key) != NULL;
}

/* Returns true if other is the key without its first variant, whose segment begins at dot + 1. */
static bool is_without_variant(const char *key, const char *dot, const char *other)
{
    const size_t n_before = (size_t)(dot - key);
    const char *rest = dot + 1 + strcspn(dot + 1, ".");
    return strncmp(key, other, n_before) == 0 && strcmp(rest, other + n_before) == 0;
}

const char *similarity_suggest(const char *missing, const struct report_lines *unused)
{
    const char *variant = find_variant(missing);
    const char *best = NULL;
    double best_value = 0;
    for (size_t i = 0; variant != NULL && i < unused->n_lines; i++) {
        if (is_without_variant(missing, variant, unused->lines[i].texts[0]))
            return unused->lines[i].texts[0];
    }
    for (size_t i = 0; i < unused->n_lines && i < MAX_COMPARED; i++) {
        const double value = similarity_jaro(missing, unused->lines[i].texts[0]);
        if (value >= 0.7 && value > best_value) {
            best = unused->lines[i].texts[0];
            best_value = value;
        }
    }
    return best;
}
