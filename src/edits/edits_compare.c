/* SPDX-License-Identifier: MIT */
/*
 * A tensor under another key counts as renamed where dtype, shape and bytes are the same. The order
 * of the other checkpoint is not taken over.
 */
#include <weightfs/cleanup.h>
#include <weightfs/patch.h>
#include <weightfs/value.h>
#include <weightfs/workload.h>
#include "edits/edits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Tensors of from that are equal but for their keys form a list, whose first one is in the map. */
struct twin {
    uint64_t digest;
    uint32_t next; /* 1 + the next one that is not renamed yet; 0: none */
    bool is_renamed;
};

struct known {
    uint64_t digest;
    bool is_known;
};

struct comparison {
    struct wfs_patch *patch;
    struct wfs_workload *workload; /* the tensors of from, then those of to */
    struct known *known;           /* of each group of that */
    const struct wfs_catalog *from, *to;
    bool allows_large;
    struct patch_keys from_keys, to_keys;
    struct map removed; /* tensors of from without a key in to, by what they are */
    struct twin *twins; /* of each tensor of from */
    struct wfs_error *err;
};

/* Looks at the bytes of the i-th tensor of a catalog; at those of ties once. */
static int digest(struct comparison *comparison, const struct wfs_catalog *catalog, size_t i,
                  uint64_t *ret)
{
    const size_t n_before = catalog == comparison->to ? wfs_catalog_n_tensors(comparison->from) : 0;
    const size_t group = wfs_workload_group(comparison->workload, n_before + i);
    struct known *known = group == 0 ? NULL : &comparison->known[group];
    if (known != NULL && known->is_known) {
        *ret = known->digest;
        return 0;
    }
    const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
    const int code = wfs_tensor_digest(tensor, ret);
    if (code == 0 && known != NULL)
        *known = (struct known){*ret, true};
    return code < 0 ? wfs_fail(comparison->err, -code, "tensor '%s' cannot be read: %s",
                               wfs_quote(tensor->key).text, strerror(-code))
                    : 0;
}

/* Refuses what would take too long, unless that is allowed, before any of it is looked at. */
static int plan_work(struct comparison *comparison)
{
    const struct wfs_catalog *catalogs[] = {comparison->from, comparison->to};
    const size_t n = wfs_catalog_n_tensors(catalogs[0]) + wfs_catalog_n_tensors(catalogs[1]);
    autofree struct wfs_work *works = calloc(n + 1, sizeof(*works));
    size_t n_works = 0;
    if (works == NULL)
        return wfs_fail_memory(comparison->err);
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < wfs_catalog_n_tensors(catalogs[k]); i++)
            works[n_works++] =
                (struct wfs_work){wfs_catalog_tensor(catalogs[k], i), .reads_shown = true};
    }
    if (wfs_workload_new(works, n, &comparison->workload) < 0)
        return wfs_fail_memory(comparison->err);
    const size_t n_groups = wfs_workload_n_groups(comparison->workload);
    comparison->known = calloc(n_groups + 1, sizeof(*comparison->known));
    if (comparison->known == NULL)
        return wfs_fail_memory(comparison->err);
    return comparison->allows_large ? 0 : wfs_workload_check(comparison->workload, comparison->err);
}

static uint64_t hash_of(const struct wfs_tensor *tensor, uint64_t bytes)
{
    const uint64_t facts[] = {bytes, tensor->dtype, tensor->n_bytes, tensor->shape.rank};
    return hash_bytes(facts, sizeof(facts), hash_seed());
}

/* ---- tensors ---- */

static struct patch_edit *add_edit(struct comparison *comparison, unsigned kind, const char *from,
                                   const char *to)
{
    struct patch_edit *edit = patch_add(comparison->patch, kind);
    if (edit == NULL) {
        wfs_fail_memory(comparison->err);
        return NULL;
    }
    edit->from = from;
    edit->to = to;
    return edit;
}

static int describe(struct comparison *comparison, struct patch_edit *edit,
                    const struct wfs_tensor *tensor, bool has_content)
{
    edit->has_dtype = edit->has_shape = true;
    edit->dtype = tensor->dtype;
    edit->shape = tensor->shape;
    return has_content && patch_add_content(comparison->patch, tensor, &edit->content) < 0
               ? wfs_fail_memory(comparison->err)
               : 0;
}

static bool is_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Notes the texts that the tensor has and the other one, which may be NULL, has not. */
static int describe_texts(struct comparison *comparison, const struct wfs_tensor *was,
                          const struct wfs_tensor *tensor, const char *ret[TENSOR_N_TEXTS])
{
    static const char *const fixed[] = {"dtype", "numpy", "sparse"};
    for (unsigned i = 0; i < TENSOR_N_TEXTS; i++) {
        const char *text = wfs_tensor_attr(tensor, tensor_text_names[i]);
        const char *old = was == NULL ? NULL : wfs_tensor_attr(was, tensor_text_names[i]);
        ret[i] = is_text(text, old) ? NULL : text;
    }
    const bool is_quantized = ret[TENSOR_QUANTIZATION] != NULL;
    bool can_be = !is_quantized || tensor_can_be_quantized((enum wfs_dtype)tensor->dtype);
    for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed) && was != NULL; i++) {
        const char *text = wfs_tensor_attr(tensor, fixed[i]); /* NULL: not kept by its format */
        can_be = can_be && (text == NULL || is_text(wfs_tensor_attr(was, fixed[i]), text));
    }
    return can_be ? 0
                  : wfs_fail(comparison->err, EOPNOTSUPP,
                             "tensor '%s': a patch cannot hold how it is %s",
                             wfs_quote(tensor->key).text,
                             is_quantized ? "quantized" : "built in Python");
}

/* Two tensors of the same key, by their positions in from and to. */
static int compare_pair(struct comparison *comparison, size_t was, size_t is)
{
    const struct wfs_tensor *a = wfs_catalog_tensor(comparison->from, was);
    const struct wfs_tensor *b = wfs_catalog_tensor(comparison->to, is);
    const bool is_described_alike =
        a->dtype == b->dtype && wfs_shape_is_equal(&a->shape, &b->shape);
    uint64_t one = 0, other = 1;
    int code = 0;
    if (a->n_bytes == b->n_bytes) {
        code = digest(comparison, comparison->from, was, &one);
        if (code == 0)
            code = digest(comparison, comparison->to, is, &other);
    }
    const char *texts[TENSOR_N_TEXTS];
    if (code == 0)
        code = describe_texts(comparison, a, b, texts);
    const bool has_texts = code == 0 && (texts[0] != NULL || texts[1] != NULL);
    if (code < 0 || (is_described_alike && one == other && !has_texts))
        return code;
    struct patch_edit *edit = add_edit(comparison, PATCH_TENSORS, a->key, b->key);
    if (edit == NULL)
        return -ENOMEM;
    memcpy(edit->texts, texts, sizeof(texts));
    if (!is_described_alike || one != other)
        code = describe(comparison, edit, b, one != other);
    patch_note_was(edit, a);
    return code;
}

struct same {
    const struct comparison *comparison;
    const struct wfs_tensor *tensor;
    uint64_t digest;
};

static bool is_same(const void *ctx, uint32_t i)
{
    const struct same *same = ctx;
    const struct wfs_tensor *a = wfs_catalog_tensor(same->comparison->from, i);
    return same->comparison->twins[i].digest == same->digest && a->dtype == same->tensor->dtype &&
           a->n_bytes == same->tensor->n_bytes &&
           wfs_shape_is_equal(&a->shape, &same->tensor->shape);
}

/* Takes a tensor out of the list of those that are equal; false: it is empty. */
static bool take_twin(struct twin *twins, uint32_t first, uint32_t *ret)
{
    *ret = twins[first].next != 0 ? twins[first].next - 1 : first;
    twins[first].next = twins[*ret].next;
    if (twins[*ret].is_renamed)
        return false;
    twins[*ret].is_renamed = true;
    return true;
}

/* A tensor of `to` whose key `from` lacks: renamed, or new. */
static int compare_new(struct comparison *comparison, size_t is)
{
    const struct wfs_tensor *tensor = wfs_catalog_tensor(comparison->to, is);
    uint64_t bytes;
    uint32_t i;
    const int code = digest(comparison, comparison->to, is, &bytes);
    if (code < 0)
        return code;
    const struct same same = {comparison, tensor, bytes};
    if (map_find(&comparison->removed, hash_of(tensor, bytes), is_same, &same, &i) &&
        take_twin(comparison->twins, i, &i)) {
        return add_edit(comparison, PATCH_TENSORS, wfs_catalog_tensor(comparison->from, i)->key,
                        tensor->key) == NULL
                   ? -ENOMEM
                   : 0;
    }
    const char *texts[TENSOR_N_TEXTS];
    if (describe_texts(comparison, NULL, tensor, texts) < 0)
        return -EOPNOTSUPP;
    struct patch_edit *edit = add_edit(comparison, PATCH_TENSORS, NULL, tensor->key);
    if (edit == NULL)
        return -ENOMEM;
    memcpy(edit->texts, texts, sizeof(texts));
    return describe(comparison, edit, tensor, true);
}

static int add_removed(struct comparison *comparison, uint32_t i, uint64_t bytes)
{
    struct twin *twins = comparison->twins;
    const struct wfs_tensor *tensor = wfs_catalog_tensor(comparison->from, i);
    const struct same same = {comparison, tensor, bytes};
    const uint64_t hash = hash_of(tensor, bytes);
    uint32_t first;
    twins[i].digest = bytes;
    if (!map_find(&comparison->removed, hash, is_same, &same, &first))
        return map_add(&comparison->removed, hash, i);
    twins[i].next = twins[first].next;
    twins[first].next = i + 1;
    return 0;
}

/* Those that may have been renamed. */
static int collect_removed(struct comparison *comparison)
{
    const size_t n = wfs_catalog_n_tensors(comparison->from);
    size_t n_new = 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(comparison->to); i++)
        n_new += patch_keys_find(&comparison->from_keys,
                                 wfs_catalog_tensor(comparison->to, i)->key) == SIZE_MAX;
    for (size_t i = 0; i < n && n_new > 0; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(comparison->from, i);
        uint64_t bytes;
        if (patch_keys_find(&comparison->to_keys, tensor->key) != SIZE_MAX)
            continue;
        const int code = digest(comparison, comparison->from, i, &bytes);
        if (code < 0)
            return code;
        if (add_removed(comparison, (uint32_t)i, bytes) < 0)
            return wfs_fail_memory(comparison->err);
    }
    return 0;
}

static int compare_tensors(struct comparison *comparison)
{
    const struct wfs_catalog *from = comparison->from, *to = comparison->to;
    int code = collect_removed(comparison);
    for (size_t i = 0; i < wfs_catalog_n_tensors(to) && code == 0; i++) {
        const size_t base = patch_keys_find(&comparison->from_keys, wfs_catalog_tensor(to, i)->key);
        code = base == SIZE_MAX ? compare_new(comparison, i) : compare_pair(comparison, base, i);
    }
    for (size_t i = 0; i < wfs_catalog_n_tensors(from) && code == 0; i++) {
        const char *key = wfs_catalog_tensor(from, i)->key;
        if (comparison->twins[i].is_renamed ||
            patch_keys_find(&comparison->to_keys, key) != SIZE_MAX)
            continue;
        code = add_edit(comparison, PATCH_TENSORS, key, NULL) == NULL ? -ENOMEM : 0;
    }
    return code;
}

/* ---- values ---- */

static int put_value(struct comparison *comparison, const char *from, const char *to,
                     const char *text, size_t n_bytes)
{
    struct source *source;
    struct patch_edit *edit = add_edit(comparison, PATCH_VALUES, from, to);
    const char *copy = arena_copy(&comparison->patch->contents->arena, text, n_bytes);
    if (edit == NULL || copy == NULL || source_new_memory("a value", copy, n_bytes, &source) < 0 ||
        patch_add_bytes(comparison->patch, source, &edit->content) < 0)
        return wfs_fail_memory(comparison->err);
    return 0;
}

static int compare_value(struct comparison *comparison, const struct patch_keys *was, size_t i)
{
    autofree char *text = NULL;
    autofree char *old = NULL;
    size_t n_text = 0, n_old = 0;
    const char *name = wfs_catalog_value_name(comparison->to, i);
    const size_t base = patch_keys_find(was, name);
    int code = wfs_catalog_value_text(comparison->to, i, &text, &n_text);
    if (code == 0 && base != SIZE_MAX)
        code = wfs_catalog_value_text(comparison->from, base, &old, &n_old);
    if (code < 0)
        return wfs_fail(comparison->err, -code, "value '%s' cannot be read: %s",
                        wfs_quote(name).text, strerror(-code));
    if (old != NULL && n_old == n_text && memcmp(old, text, n_text) == 0)
        return 0;
    code = put_value(comparison, old != NULL ? name : NULL, name, text, n_text);
    if (code == 0 && old != NULL) {
        const struct patch_edits *edits = &comparison->patch->edits[PATCH_VALUES];
        edits->items[edits->n_items - 1].was =
            (struct patch_was){.has_digest = true, .digest = hash_bytes(old, n_old, 0)};
    }
    return code;
}

static int compare_values(struct comparison *comparison)
{
    cleanup(patch_keys_done) struct patch_keys was = {0};
    cleanup(patch_keys_done) struct patch_keys is = {0};
    if (patch_keys_init(&was, comparison->from, true) < 0 ||
        patch_keys_init(&is, comparison->to, true) < 0)
        return wfs_fail_memory(comparison->err);
    int code = 0;
    for (size_t i = 0; i < is.n && code == 0; i++)
        code = compare_value(comparison, &was, i);
    for (size_t i = 0; i < was.n && code == 0; i++) {
        const char *name = wfs_catalog_value_name(comparison->from, i);
        if (patch_keys_find(&is, name) == SIZE_MAX &&
            add_edit(comparison, PATCH_VALUES, name, NULL) == NULL)
            code = -ENOMEM;
    }
    return code;
}

/* ---- the whole ---- */

/* What the format of `to` has no room for is not taken as removed. */
static int compare(struct comparison *comparison)
{
    const struct wfs_format *format = wfs_catalog_format(comparison->to);
    int code = plan_work(comparison);
    if (code == 0)
        code = compare_tensors(comparison);
    if (code == 0 && (format == NULL || format->values == WFS_VALUES_ANY))
        code = compare_values(comparison);
    if (code == 0 && (format == NULL || format->keeps_metadata) &&
        patch_compare_meta(comparison->patch, wfs_catalog_meta(comparison->from),
                           wfs_catalog_meta(comparison->to), false) < 0)
        code = wfs_fail_memory(comparison->err);
    return code;
}

int wfs_patch_compare(const struct wfs_catalog *from, const struct wfs_catalog *to,
                      bool allows_large, struct wfs_patch **out, struct wfs_error *err)
{
    auto_patch struct wfs_patch *patch = NULL;
    struct comparison comparison = {
        .from = from, .to = to, .allows_large = allows_large, .err = err};
    autofree struct twin *twins = calloc(wfs_catalog_n_tensors(from) + 1, sizeof(*twins));
    comparison.twins = twins;
    int code = twins == NULL || wfs_patch_new(&patch) < 0 ||
                       patch_keys_init(&comparison.from_keys, from, false) < 0 ||
                       patch_keys_init(&comparison.to_keys, to, false) < 0
                   ? wfs_fail_memory(err)
                   : 0;
    comparison.patch = patch;
    if (code == 0)
        code = compare(&comparison);
    patch_keys_done(&comparison.from_keys);
    patch_keys_done(&comparison.to_keys);
    map_done(&comparison.removed);
    wfs_workload_free(comparison.workload);
    free(comparison.known);
    if (code == 0)
        *out = steal(&patch);
    return code;
}
