/* SPDX-License-Identifier: MIT */
/*
 * Hidden bytes of both checkpoints are sorted by the key of a tensor that shows other bytes of the
 * storage, and by a hash of the bytes. Names of storages say nothing: they are numbers that change
 * with the order of the tensors.
 */
#include "cli/diff_hidden.h"

#include "program/print.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct part {
    const struct wfs_hidden *hidden;
    uint64_t digest;
};

struct parts {
    struct part *parts;
    size_t n_parts;
};

/* Storages without a tensor precede all others. */
static int compare_keys(const struct part *x, const struct part *y)
{
    const char *one = x->hidden->key, *other = y->hidden->key;
    if (one == NULL || other == NULL)
        return (one != NULL) - (other != NULL);
    return strcmp(one, other);
}

static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    const int order = compare_keys(x, y);
    return order != 0 ? order : x->digest < y->digest ? -1 : x->digest > y->digest;
}

static int collect(const struct wfs_catalog *catalog, struct parts *ret)
{
    const size_t n = wfs_catalog_n_hidden(catalog);
    int code = 0;
    *ret = (struct parts){calloc(n + 1, sizeof(*ret->parts)), n};
    if (ret->parts == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n && code == 0; i++) {
        ret->parts[i].hidden = wfs_catalog_hidden(catalog, i);
        code = wfs_catalog_hidden_digest(catalog, i, &ret->parts[i].digest);
    }
    if (code == 0)
        qsort(ret->parts, n, sizeof(*ret->parts), compare_parts);
    return code;
}

static void put(struct jsonout *json, const struct wfs_hidden *hidden, const char *change)
{
    if (json == NULL) {
        printf("storage %s: '%s', %s that no tensor shows", change, wfs_quote(hidden->storage).text,
               wfs_count(hidden->n_bytes, "byte").text);
        if (hidden->key != NULL) {
            printf(", beside ");
            print_escaped(stdout, hidden->key);
        }
        putchar('\n');
        return;
    }
    jsonout_open_object(json, NULL);
    jsonout_text(json, "storage", hidden->storage);
    jsonout_text(json, "key", hidden->key);
    jsonout_u64(json, "bytes", hidden->n_bytes);
    jsonout_text(json, "change", change);
    jsonout_close_object(json);
}

/* Both are sorted. Parts with one key and two hashes have changed. */
static uint64_t walk(const struct parts *a, const struct parts *b, struct jsonout *json)
{
    uint64_t n = 0;
    for (size_t i = 0, j = 0; i < a->n_parts || j < b->n_parts;) {
        const struct part *x = &a->parts[i], *y = &b->parts[j];
        const int order = i == a->n_parts ? 1 : j == b->n_parts ? -1 : compare_parts(x, y);
        const bool has_changed = order != 0 && i < a->n_parts && j < b->n_parts &&
                                 x->hidden->key != NULL && compare_keys(x, y) == 0;
        if (has_changed)
            put(json, x->hidden, "changed");
        else if (order != 0)
            put(json, order < 0 ? x->hidden : y->hidden, order < 0 ? "only in A" : "only in B");
        n += order != 0;
        i += order <= 0 || has_changed;
        j += order >= 0 || has_changed;
    }
    return n;
}

int diff_hidden_print(const struct wfs_catalog *a, const struct wfs_catalog *b,
                      struct jsonout *json, uint64_t *ret_n, const struct wfs_catalog **ret_failed)
{
    struct parts one = {0}, other = {0};
    if (json != NULL)
        jsonout_open_array(json, "hidden");
    *ret_failed = a;
    int code = collect(a, &one);
    if (code == 0) {
        *ret_failed = b;
        code = collect(b, &other);
    }
    if (code == 0)
        *ret_n = walk(&one, &other, json);
    if (json != NULL)
        jsonout_close_array(json);
    free(one.parts);
    free(other.parts);
    return code;
}
