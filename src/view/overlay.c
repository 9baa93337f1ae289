/* SPDX-License-Identifier: MIT */
/*
 * Overlays: tensors of other checkpoints replace or join those of the source, before any other
 * option is applied. Only tensors are taken; metadata and values stay those of the source.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "tensor/catalog_parts.h"
#include "view/rule.h"

struct laying {
    const struct rule *rule;
    struct wfs_catalog *catalog;
    struct map by_key;  /* of the catalog */
    const char *change; /* the note in `changes` of each tensor */
    size_t n_covered, n_added;
    struct wfs_error *err;
};

struct sought {
    const struct wfs_catalog *catalog;
    const char *key;
};

static const struct rule *find_rule(const struct wfs_view *view, size_t i)
{
    for_rules(rule, view, RULE_OVERLAY)
    {
        if (i-- == 0)
            return rule;
    }
    return NULL;
}

const char *wfs_view_overlay(const struct wfs_view *view, size_t i)
{
    const struct rule *rule = find_rule(view, i);
    return rule == NULL ? NULL : rule->argument;
}

static uint64_t hash_key(const char *key)
{
    return hash_bytes(key, strlen(key), hash_seed());
}

static bool is_key(const void *ctx, uint32_t id)
{
    const struct sought *sought = ctx;
    return strcmp(sought->catalog->tensors[id].key, sought->key) == 0;
}

static int add_keys(struct laying *laying, size_t n_more)
{
    const struct wfs_catalog *catalog = laying->catalog;
    if (catalog->n_tensors + n_more >= UINT32_MAX)
        return wfs_fail(laying->err, E2BIG, "too many tensors: %zu", catalog->n_tensors + n_more);
    if (map_reserve(&laying->by_key, (uint32_t)(catalog->n_tensors + n_more)) < 0)
        return wfs_fail_memory(laying->err);
    for (uint32_t i = 0; i < catalog->n_tensors; i++) {
        if (map_add(&laying->by_key, hash_key(catalog->tensors[i].key), i) < 0)
            return wfs_fail_memory(laying->err);
    }
    return 0;
}

static bool is_same_kind(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return a->dtype == b->dtype && wfs_shape_is_equal(&a->shape, &b->shape);
}

/* "F32 [2, 3]" in the arena; NULL when out of memory. */
static const char *describe(struct wfs_catalog *catalog, const struct wfs_tensor *tensor)
{
    char shape[256];
    wfs_shape_format(&tensor->shape, shape, sizeof(shape));
    return arena_print(&catalog->arena, "%s %s", wfs_dtype_name((enum wfs_dtype)tensor->dtype),
                       shape);
}

/* The tensor takes the place of the covered one in the order and in the graph. */
static int cover(struct laying *laying, struct wfs_tensor *covered, const struct wfs_tensor *tensor)
{
    struct wfs_catalog *catalog = laying->catalog;
    struct catalog_cover *cover = catalog_add_cover(catalog);
    if (cover == NULL)
        return wfs_fail_memory(laying->err);
    *cover = (struct catalog_cover){.key = tensor->key, .by = laying->rule->argument};
    if (covered->stored.source != NULL)
        cover->file = covered->stored.source->path;
    const bool is_other = !is_same_kind(covered, tensor);
    cover->by = arena_copy(&catalog->arena, cover->by, strlen(cover->by));
    cover->was = is_other ? describe(catalog, covered) : NULL;
    cover->is = is_other ? describe(catalog, tensor) : NULL;
    if (cover->by == NULL || (is_other && (cover->was == NULL || cover->is == NULL)))
        return wfs_fail_memory(laying->err);
    const struct wfs_tensor before = *covered;
    *covered = *tensor;
    covered->value = before.value;
    covered->place = before.place;
    covered->home = before.home;
    covered->changes = laying->change;
    laying->n_covered++;
    return 0;
}

static int add(struct laying *laying, const struct wfs_tensor *tensor)
{
    struct wfs_catalog *catalog = laying->catalog;
    struct wfs_tensor *added = catalog_add(catalog);
    if (added == NULL ||
        map_add(&laying->by_key, hash_key(tensor->key), (uint32_t)(catalog->n_tensors - 1)) < 0)
        return wfs_fail_memory(laying->err);
    *added = *tensor;
    added->value = added->place = 0; /* numbers in the graph of the overlay */
    added->home = NULL;
    added->changes = laying->change;
    laying->n_added++;
    return 0;
}

/* Returns 1 if the filter of the overlay takes the key, else 0, or an error. */
static int is_taken(const struct laying *laying, const char *key)
{
    if (laying->rule->regex == NULL)
        return 1;
    const int code = regex_search(laying->rule->regex, key, laying->err);
    return code < 0 ? code : (code > 0) != laying->rule->is_negated;
}

static int lay_tensors(struct laying *laying, const struct wfs_catalog *over)
{
    for (size_t i = 0; i < over->n_tensors; i++) {
        const struct wfs_tensor *tensor = &over->tensors[i];
        const struct sought sought = {laying->catalog, tensor->key};
        uint32_t id;
        int code = is_taken(laying, tensor->key);
        if (code > 0)
            code = map_find(&laying->by_key, hash_key(tensor->key), is_key, &sought, &id)
                       ? cover(laying, &laying->catalog->tensors[id], tensor)
                       : add(laying, tensor);
        if (code < 0)
            return code;
    }
    if (laying->n_covered + laying->n_added == 0 && over->n_tensors > 0)
        return wfs_fail(laying->err, EINVAL, "overlay '%s': the filter matches none of its %s",
                        wfs_quote(laying->rule->argument).text,
                        wfs_count(over->n_tensors, "tensor").text);
    return 0;
}

/* Adds findings: what was replaced, and the findings of the overlay itself. */
static int add_findings(struct laying *laying, const struct wfs_catalog *over)
{
    struct wfs_catalog *catalog = laying->catalog;
    const struct wfs_quoted file = wfs_quote(laying->rule->argument);
    int code = catalog_add_finding(catalog, WFS_FINDING_OVERLAY,
                                   "overlay '%s': tensors replaced: %zu, added: %zu, values "
                                   "ignored: %zu",
                                   file.text, laying->n_covered, laying->n_added, over->n_values);
    for (size_t i = 0; code == 0 && i < over->n_findings; i++)
        code = catalog_add_finding(catalog, over->findings[i].kind, "overlay '%s': %s", file.text,
                                   over->findings[i].text);
    return code < 0 ? wfs_fail_memory(laying->err) : 0;
}

int wfs_view_lay(const struct wfs_view *view, size_t i, struct wfs_catalog *catalog,
                 struct wfs_catalog *over, struct wfs_error *err)
{
    struct laying laying = {.rule = find_rule(view, i), .catalog = catalog, .err = err};
    laying.change =
        arena_print(&catalog->arena, "overlay %s", wfs_quote(laying.rule->argument).text);
    int code = laying.change == NULL ? wfs_fail_memory(err) : add_keys(&laying, over->n_tensors);
    code = code < 0 ? code : lay_tensors(&laying, over);
    code = code < 0 ? code : add_findings(&laying, over);
    map_done(&laying.by_key);
    if (catalog_adopt_part(catalog, over) < 0)
        return wfs_fail_memory(err);
    return code;
}
