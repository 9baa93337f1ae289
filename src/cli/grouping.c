/* SPDX-License-Identifier: MIT */
/*
 * Runs of sorted keys. Whatever shares leading components stands together, so the end of a run is
 * found by bisection.
 */
#include "cli/grouping.h"

#include "cli/input.h"

#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789";

/* A dot sorts before all else, so that a key stands right before those that it is a prefix of. */
static int rank_of(char c)
{
    return c == '\0' ? 0 : c == '.' ? 1 : (unsigned char)c + 1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Runs of digits by length, then as text: the order of numbers. */
static int compare_keys(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] == b[i] && a[i] != '\0')
        i++;
    const size_t n_a = strspn(a + i, digits), n_b = strspn(b + i, digits);
    const bool is_in_number = (i > 0 && is_digit(a[i - 1])) || (n_a > 0 && n_b > 0);
    if (is_in_number && n_a != n_b)
        return n_a < n_b ? -1 : 1;
    return rank_of(a[i]) - rank_of(b[i]);
}

static int compare(const void *a, const void *b)
{
    const struct wfs_tensor *const *x = a;
    const struct wfs_tensor *const *y = b;
    return compare_keys((*x)->key, (*y)->key);
}

void grouping_sort(struct grouping *grouping)
{
    qsort(grouping->tensors, grouping->n_tensors, sizeof(*grouping->tensors), compare);
}

size_t grouping_component(const char *key, size_t n_prefix)
{
    return strcspn(key + n_prefix, ".");
}

size_t grouping_end(const struct grouping *grouping, size_t i, size_t end, size_t n_prefix)
{
    const char *name = grouping->tensors[i]->key + n_prefix;
    const size_t n_name = grouping_component(grouping->tensors[i]->key, n_prefix);
    size_t low = i + 1;
    while (low < end) {
        const size_t middle = low + (end - low) / 2;
        const char *other = grouping->tensors[middle]->key + n_prefix;
        if (strncmp(name, other, n_name) == 0 && (other[n_name] == '.' || other[n_name] == '\0'))
            low = middle + 1;
        else
            end = middle;
    }
    return low;
}

size_t grouping_common_prefix(const struct grouping *grouping, size_t i, size_t end)
{
    const char *first = grouping->tensors[i]->key;
    const char *last = grouping->tensors[end - 1]->key;
    size_t n_prefix = 0;
    for (size_t j = 0; first[j] != '\0' && first[j] == last[j]; j++) {
        if (first[j] == '.')
            n_prefix = j + 1;
    }
    return n_prefix;
}

uint64_t grouping_n_bytes(const struct grouping *grouping, size_t i, size_t end)
{
    uint64_t n_bytes = 0;
    for (; i < end; i++)
        n_bytes = input_add(n_bytes, grouping->tensors[i]->n_bytes);
    return n_bytes;
}
