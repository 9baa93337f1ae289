/* SPDX-License-Identifier: MIT */
/*
 * Both kinds become lists of names and texts, which are sorted by name and merged.
 */
#include "cli/diff_texts.h"

#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/value.h>

#include <errno.h>
#include <string.h>

/* A metadata text, or the index of a value, whose text is made when it is compared. */
struct text {
    const char *name;
    const struct wfs_text *meta;
    size_t value;
};

struct texts {
    const struct wfs_catalog *catalog;
    struct text *texts;
    size_t n_texts;
};

struct differences {
    struct jsonout *json;
    const char *kind;
    uint64_t n;
};

static int compare_names(const void *a, const void *b)
{
    const struct text *one = a, *other = b;
    return strcmp(one->name, other->name);
}

static int collect(const struct wfs_catalog *catalog, bool is_meta, struct texts *ret)
{
    size_t n = is_meta ? 0 : wfs_catalog_n_values(catalog);
    const struct wfs_text *first = is_meta ? wfs_catalog_meta(catalog) : NULL;
    for (const struct wfs_text *meta = first; meta != NULL; meta = meta->next)
        n++;
    *ret = (struct texts){catalog, calloc(n + 1, sizeof(*ret->texts)), n};
    if (ret->texts == NULL)
        return -ENOMEM;
    const struct wfs_text *meta = first;
    for (size_t i = 0; i < n; i++) {
        ret->texts[i] =
            (struct text){is_meta ? meta->name : wfs_catalog_value_name(catalog, i), meta, i};
        meta = is_meta ? meta->next : NULL;
    }
    qsort(ret->texts, n, sizeof(*ret->texts), compare_names);
    return 0;
}

static int is_equal(const struct texts *a, const struct text *x, const struct texts *b,
                    const struct text *y)
{
    if (x->meta != NULL)
        return x->meta->n_bytes == y->meta->n_bytes &&
               memcmp(x->meta->value, y->meta->value, x->meta->n_bytes) == 0;
    autofree char *one = NULL, *other = NULL;
    size_t n_one, n_other;
    int code = wfs_catalog_value_text(a->catalog, x->value, &one, &n_one);
    if (code == 0)
        code = wfs_catalog_value_text(b->catalog, y->value, &other, &n_other);
    if (code < 0)
        return code;
    return n_one == n_other && memcmp(one, other, n_one) == 0;
}

static void put_change(struct differences *differences, const char *name, const char *change)
{
    differences->n++;
    if (differences->json == NULL) {
        printf("%s %s: ", differences->kind, change);
        print_escaped(stdout, name);
        putchar('\n');
        return;
    }
    jsonout_open_object(differences->json, NULL);
    jsonout_text(differences->json, "kind", differences->kind);
    jsonout_text(differences->json, "name", name);
    jsonout_text(differences->json, "change", change);
    jsonout_close_object(differences->json);
}

static int walk(const struct texts *a, const struct texts *b, struct differences *differences)
{
    for (size_t i = 0, j = 0; i < a->n_texts || j < b->n_texts;) {
        const int order = i == a->n_texts   ? 1
                          : j == b->n_texts ? -1
                                            : strcmp(a->texts[i].name, b->texts[j].name);
        if (order == 0) {
            const int code = is_equal(a, &a->texts[i], b, &b->texts[j]);
            if (code < 0)
                return code;
            if (code == 0)
                put_change(differences, a->texts[i].name, "changed");
        } else {
            put_change(differences, order < 0 ? a->texts[i].name : b->texts[j].name,
                       order < 0 ? "only in A" : "only in B");
        }
        i += order <= 0;
        j += order >= 0;
    }
    return 0;
}

static int compare(const struct wfs_catalog *a, const struct wfs_catalog *b, bool is_meta,
                   struct differences *differences)
{
    struct texts one = {0}, other = {0};
    int code = collect(a, is_meta, &one);
    if (code == 0)
        code = collect(b, is_meta, &other);
    if (code == 0)
        code = walk(&one, &other, differences);
    free(one.texts);
    free(other.texts);
    return code;
}

int diff_texts_print(const struct wfs_catalog *a, const struct wfs_catalog *b, struct jsonout *json,
                     uint64_t *ret_n)
{
    struct differences differences = {.json = json, .kind = "metadata"};
    if (json != NULL)
        jsonout_open_array(json, "texts");
    int code = compare(a, b, true, &differences);
    differences.kind = "value";
    if (code == 0)
        code = compare(a, b, false, &differences);
    if (json != NULL)
        jsonout_close_array(json);
    *ret_n = differences.n;
    return code;
}
