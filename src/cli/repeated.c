/* SPDX-License-Identifier: MIT */
/*
 * A sorted list of those whose elements another tensor of the catalog has, too.
 */
#include "cli/repeated.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct group {
    const struct wfs_tensor *tensor; /* one of them */
    bool is_known;
    struct wfs_stats stats;
};

struct repeated {
    struct group *groups;
    size_t n_groups;
};

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_numbers(const uint64_t *a, const uint64_t *b, uint32_t n)
{
    int order = compare(a != NULL, b != NULL);
    for (uint32_t i = 0; i < n && order == 0 && a != NULL; i++)
        order = compare(a[i], b[i]);
    return order;
}

/* Returns 0 when both show the same stored elements in the same way. */
static int compare_tensors(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const struct wfs_stored *x = &a->stored, *y = &b->stored;
    const uint64_t one[] = {
        (uintptr_t)x->source, x->offset,       a->n_bytes,     a->dtype,     x->dtype,
        x->is_big_endian,     x->is_conjugate, x->is_negative, a->shape.rank};
    const uint64_t other[] = {
        (uintptr_t)y->source, y->offset,       b->n_bytes,     b->dtype,     y->dtype,
        y->is_big_endian,     y->is_conjugate, y->is_negative, b->shape.rank};
    int order = compare_numbers(one, other, sizeof(one) / sizeof(*one));
    if (order == 0 && a->shape.rank > 0)
        order = compare_numbers(a->shape.dims, b->shape.dims, a->shape.rank);
    return order == 0 && a->shape.rank > 0 ? compare_numbers(x->strides, y->strides, a->shape.rank)
                                           : order;
}

static int by_elements(const void *a, const void *b)
{
    const struct wfs_tensor *const *one = a, *const *other = b;
    return compare_tensors(*one, *other);
}

static int add_groups(struct repeated *repeated, const struct wfs_tensor *const *sorted, size_t n)
{
    size_t n_groups = 0;
    for (size_t i = 1; i < n; i++)
        n_groups += compare_tensors(sorted[i - 1], sorted[i]) == 0;
    repeated->groups = calloc(n_groups + 1, sizeof(*repeated->groups));
    if (repeated->groups == NULL)
        return -ENOMEM;
    for (size_t i = 1; i < n; i++) {
        const size_t n_before = repeated->n_groups;
        if (compare_tensors(sorted[i - 1], sorted[i]) == 0 &&
            (n_before == 0 ||
             compare_tensors(repeated->groups[n_before - 1].tensor, sorted[i]) != 0))
            repeated->groups[repeated->n_groups++].tensor = sorted[i];
    }
    return 0;
}

int repeated_new(const struct wfs_catalog *catalog, struct repeated **out)
{
    const size_t n = wfs_catalog_n_tensors(catalog);
    autofree const struct wfs_tensor **sorted = calloc(n + 1, sizeof(*sorted));
    struct repeated *repeated = calloc(1, sizeof(*repeated));
    for (size_t i = 0; sorted != NULL && i < n; i++)
        sorted[i] = wfs_catalog_tensor(catalog, i);
    if (sorted != NULL)
        qsort(sorted, n, sizeof(*sorted), by_elements);
    if (sorted == NULL || repeated == NULL || add_groups(repeated, sorted, n) < 0) {
        free(repeated);
        return -ENOMEM;
    }
    *out = repeated;
    return 0;
}

void repeated_free(struct repeated *repeated)
{
    if (repeated == NULL)
        return;
    free(repeated->groups);
    free(repeated);
}

static int by_group(const void *key, const void *group)
{
    return compare_tensors(key, ((const struct group *)group)->tensor);
}

static int find_stats(const struct wfs_tensor *tensor, struct wfs_stats *ret)
{
    struct wfs_odd odd;
    int code = wfs_tensor_stats(tensor, ret);
    if (code != -EOPNOTSUPP)
        return code;
    code = wfs_tensor_count_odd(tensor, &odd);
    if (code == 0)
        *ret = (struct wfs_stats){
            .n_elems = odd.n_elems, .n_nan = odd.n_nan, .n_positive_inf = odd.n_inf};
    return code;
}

int repeated_stats(struct repeated *repeated, const struct wfs_tensor *tensor,
                   struct wfs_stats *ret)
{
    struct group *group =
        bsearch(tensor, repeated->groups, repeated->n_groups, sizeof(*repeated->groups), by_group);
    if (group != NULL && group->is_known) {
        *ret = group->stats;
        return 0;
    }
    const int code = find_stats(tensor, ret);
    if (code == 0 && group != NULL) {
        group->stats = *ret;
        group->is_known = true;
    }
    return code;
}
