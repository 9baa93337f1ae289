/* SPDX-License-Identifier: MIT */
/*
 * What is in the tensors is compared elsewhere.
 */
#include "program/pairing.h"

#include "program/key_tree.h"

#include <weightfs/cleanup.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct wfs_tensor *diff_row_tensor(const struct diff_row *row)
{
    return row->a != NULL ? row->a : row->b;
}

static int compare_keys(const void *a, const void *b)
{
    const struct wfs_tensor *const *one = a, *const *other = b;
    return strcmp((*one)->key, (*other)->key);
}

/* Returns the tensors by key, malloc'ed, or NULL. */
static const struct wfs_tensor **sort_by_key(const struct wfs_catalog *catalog, size_t n)
{
    const struct wfs_tensor **tensors = calloc(n + 1, sizeof(*tensors));
    for (size_t i = 0; i < n && tensors != NULL; i++)
        tensors[i] = wfs_catalog_tensor(catalog, i);
    if (tensors != NULL)
        qsort(tensors, n, sizeof(*tensors), compare_keys);
    return tensors;
}

int diff_rows_make(const struct wfs_catalog *a, const struct wfs_catalog *b, struct diff_row **out,
                   size_t *ret_n)
{
    const size_t n_a = wfs_catalog_n_tensors(a), n_b = b != NULL ? wfs_catalog_n_tensors(b) : 0;
    autofree const struct wfs_tensor **of_a = sort_by_key(a, n_a), **of_b = sort_by_key(b, n_b);
    struct diff_row *rows = calloc(n_a + n_b + 1, sizeof(*rows));
    if (of_a == NULL || of_b == NULL || rows == NULL) {
        free(rows);
        return -ENOMEM;
    }
    *ret_n = 0;
    for (size_t i = 0; i < n_a; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(a, i);
        const struct wfs_tensor **twin = bsearch(&tensor, of_b, n_b, sizeof(*of_b), compare_keys);
        rows[(*ret_n)++] = (struct diff_row){tensor, twin == NULL ? NULL : *twin};
    }
    for (size_t i = 0; i < n_b; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(b, i);
        if (bsearch(&tensor, of_a, n_a, sizeof(*of_a), compare_keys) == NULL)
            rows[(*ret_n)++] = (struct diff_row){NULL, tensor};
    }
    *out = rows;
    return 0;
}

bool diff_row_is_renamed(const struct diff_row *row)
{
    return row->a != NULL && row->b != NULL && row->comparison.n_changed == 0 &&
           strcmp(row->a->key, row->b->key) != 0;
}

/* A tensor that only one of both has. */
struct lone {
    struct diff_row *row;
    const struct wfs_tensor *tensor;
    uint64_t digest;
};

static int by_digest(const void *a, const void *b)
{
    const struct lone *x = a, *y = b;
    if (x->tensor->n_bytes != y->tensor->n_bytes)
        return x->tensor->n_bytes < y->tensor->n_bytes ? -1 : 1;
    if (x->digest != y->digest)
        return x->digest < y->digest ? -1 : 1;
    return order_of_keys(x->tensor->key, y->tensor->key);
}

/* Collects what only A has, or only B, in the order of sizes; malloc'ed, or NULL. */
static struct lone *find_lone(struct diff_row *rows, size_t n_rows, bool is_of_b, size_t *ret_n)
{
    struct lone *lone = calloc(n_rows + 1, sizeof(*lone));
    *ret_n = 0;
    for (size_t i = 0; i < n_rows && lone != NULL; i++) {
        const struct wfs_tensor *tensor = is_of_b ? rows[i].b : rows[i].a;
        if ((is_of_b ? rows[i].a : rows[i].b) != NULL || tensor->n_bytes == 0 ||
            wfs_tensor_trouble(tensor) != NULL || wfs_tensor_is_large(tensor))
            continue;
        lone[(*ret_n)++] = (struct lone){.row = &rows[i], .tensor = tensor};
    }
    if (lone != NULL)
        qsort(lone, *ret_n, sizeof(*lone), by_digest);
    return lone;
}

/* Makes the digests of those that one of n others may be equal to. */
static int digest_lone(struct lone *lone, size_t n, const struct lone *others, size_t n_others,
                       const struct wfs_tensor **ret_failed)
{
    for (size_t i = 0, k = 0; i < n; i++) {
        *ret_failed = lone[i].tensor;
        while (k < n_others && others[k].tensor->n_bytes < lone[i].tensor->n_bytes)
            k++;
        if (k == n_others || others[k].tensor->n_bytes != lone[i].tensor->n_bytes)
            continue;
        const int code = wfs_tensor_digest(lone[i].tensor, &lone[i].digest);
        if (code < 0)
            return code;
    }
    return 0;
}

/* Both are in the order of digests, and equal ones in that of keys. */
static void pair(struct lone *of_a, size_t n_a, struct lone *of_b, size_t n_b)
{
    for (size_t i = 0, k = 0; i < n_a && k < n_b;) {
        const struct wfs_tensor *a = of_a[i].tensor, *b = of_b[k].tensor;
        const bool is_less =
            a->n_bytes != b->n_bytes ? a->n_bytes < b->n_bytes : of_a[i].digest < of_b[k].digest;
        const bool is_same = a->n_bytes == b->n_bytes && of_a[i].digest == of_b[k].digest;
        if (is_same && comparison_is_alike(a, b)) {
            of_a[i].row->b = b;
            of_b[k].row->b = NULL; /* neither */
        }
        i += is_same || is_less;
        k += is_same || !is_less;
    }
}

static int by_name(const void *a, const void *b)
{
    const struct lone *x = a, *y = b;
    return strcmp(x->tensor->key, y->tensor->key);
}

static int by_from(const void *a, const void *b)
{
    const struct wfs_patch_rename *x = a, *y = b;
    return strcmp(x->from, y->from);
}

/* The renames are in order. */
static void pair_known(struct lone *of_a, size_t n_a, struct lone *of_b, size_t n_b,
                       const struct wfs_patch_rename *renames, size_t n_renames)
{
    qsort(of_b, n_b, sizeof(*of_b), by_name);
    for (size_t i = 0; i < n_a; i++) {
        const struct wfs_patch_rename wanted = {.from = of_a[i].tensor->key};
        const struct wfs_patch_rename *rename =
            bsearch(&wanted, renames, n_renames, sizeof(*renames), by_from);
        const struct wfs_tensor target = {.key = rename != NULL ? rename->to : ""};
        const struct lone of_target = {.tensor = &target};
        struct lone *twin = bsearch(&of_target, of_b, n_b, sizeof(*of_b), by_name);
        if (rename == NULL || twin == NULL || !comparison_is_alike(of_a[i].tensor, twin->tensor))
            continue;
        of_a[i].row->b = twin->tensor;
        twin->row->b = NULL; /* neither */
    }
}

/* Finds renames by the digests of what only one has. */
static int pair_equal(struct lone *of_a, size_t n_a, struct lone *of_b, size_t n_b,
                      const struct wfs_tensor **ret_failed)
{
    int code = digest_lone(of_a, n_a, of_b, n_b, ret_failed);
    if (code == 0)
        code = digest_lone(of_b, n_b, of_a, n_a, ret_failed);
    if (code < 0)
        return code;
    qsort(of_a, n_a, sizeof(*of_a), by_digest);
    qsort(of_b, n_b, sizeof(*of_b), by_digest);
    pair(of_a, n_a, of_b, n_b);
    return 0;
}

int diff_rows_pair(struct diff_row *rows, size_t *n_rows, const struct wfs_patch_rename *renames,
                   size_t n_renames, const struct wfs_tensor **ret_failed)
{
    size_t n_a, n_b, n_kept = 0;
    *ret_failed = NULL;
    autofree struct lone *of_a = find_lone(rows, *n_rows, false, &n_a);
    autofree struct lone *of_b = find_lone(rows, *n_rows, true, &n_b);
    if (of_a == NULL || of_b == NULL)
        return -ENOMEM;
    const int code = renames == NULL ? pair_equal(of_a, n_a, of_b, n_b, ret_failed) : 0;
    if (code < 0)
        return code;
    if (renames != NULL)
        pair_known(of_a, n_a, of_b, n_b, renames, n_renames);
    for (size_t i = 0; i < *n_rows; i++) {
        if (rows[i].a != NULL || rows[i].b != NULL)
            rows[n_kept++] = rows[i];
    }
    *n_rows = n_kept;
    return 0;
}

int diff_row_order(const void *a, const void *b)
{
    return order_of_keys(diff_row_tensor(a)->key, diff_row_tensor(b)->key);
}

void diff_rows_sort(struct diff_row *rows, size_t n_rows)
{
    qsort(rows, n_rows, sizeof(*rows), diff_row_order);
}
